"""Files of other systems with one model on several kinds of cards: the import says what of them would be variants."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.read import documents_of, import_documents

KTHENA = "workload.serving.volcano.sh/v1alpha1"


def losses(document: Any) -> list[str]:
    documents, _ = documents_of([SourceBytes("x.yaml", yaml.safe_dump(document).encode())])
    return [loss.message for loss in import_documents(documents, fleet="lab").draft.losses]


@pytest.mark.parametrize(("document", "words"), [
    ({"resources": {"any_of": [{"accelerators": "H100:1"}, {"accelerators": {"A100": 2}}]}, "run": "serve"},
     "each entry of resources.any_of (H100:1, A100:2) would be one of a model's variants,"),
    ({"resources": {"ordered": [{"accelerators": "H100"}, {"infra": "aws"}]}},
     "each entry of resources.ordered (H100) would be one of a model's variants, in this order"),
    ({"resources": {"accelerators": {"L4": 1, "A10G": 1}}},
     "each of resources.accelerators (A10G, L4) would be one of a model's variants"),
    ({"apiVersion": KTHENA, "kind": "ModelBooster", "spec": {"backends": [{"name": "fast"}, {"name": "slow"}]}},
     "each of spec.backends (fast, slow) would be one of a model's variants, its minReplicas and maxReplicas"),
    ({"apiVersion": KTHENA, "kind": "AutoscalingPolicyBinding", "spec": {"heterogeneousTarget": {"params": [
        {"target": {"targetRef": {"name": "fast"}}, "cost": 3}, {"target": {"name": "slow"}}]}}},
     "each target of spec.heterogeneousTarget (fast, slow) would be one of a model's variants"),
    ({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "spec": {"modelID": "org/m"}},
     "each VariantAutoscaling of org/m would be one of the variants of that model"),
])
def test_the_message_says_what_would_be_variants(document: Any, words: str) -> None:
    [message] = losses(document)
    assert "is not imported: expected" in message
    assert words in message
    assert message.endswith("see docs/variants.md")


@pytest.mark.parametrize("document", [
    {"resources": {"accelerators": "H100:8"}}, {"resources": {"any_of": []}}, {"resources": 3},
    {"apiVersion": KTHENA, "kind": "ModelServing", "spec": {"replicas": 2}},
    {"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling"}, {"apiVersion": "v1", "kind": "Pod"},
])
def test_a_document_without_such_a_form_is_only_not_imported(document: Any) -> None:
    assert not any("variants" in message for message in losses(document))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["any_of", "ordered", "accelerators", "backends", "name", "heterogeneousTarget", "params", "target",
         "targetRef", "modelID"]), inner, max_size=3), max_leaves=12)


@given(st.sampled_from(["", KTHENA, "llmd.ai/v1alpha1"]),
       st.sampled_from(["", "ModelBooster", "AutoscalingPolicyBinding", "VariantAutoscaling"]), VALUES)
def test_any_values_in_such_forms_give_a_message_on_one_line(version: str, kind: str, value: Any) -> None:
    for message in losses({"apiVersion": version, "kind": kind, "spec": value, "resources": value}):
        assert message.isprintable()
