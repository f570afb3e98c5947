"""How a changed spec is rolled out to the replicas of a model, as set in a fleet file."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from fleetctl.documents.base import Authored, PathFromRoot, refusal
from fleetctl.documents.engine import Port

MAX_REPLICAS = 100_000
Mode = Literal["keep", "surge", "inPlace"]


def _check_json(body: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError):
        raise refusal("bad_body", "{found} is not {allowed}", body, "a JSON object") from None
    return body


Body = Annotated[dict[str, Any], AfterValidator(_check_json), WithJsonSchema({"type": "object"})]


class HttpReload(Authored):
    """The request by which an engine loads other weights; it is done when the answer is 200 to 299."""

    path: PathFromRoot = Field(description="the path, such as /update_weights_from_disk")
    method: Literal["POST", "PUT", "GET"] = Field("POST", description="POST, PUT or GET")
    port: Port | None = Field(None, description="default: the port that passed the readiness probe, else FLEETCTL_PORT")
    body: Body | None = Field(
        None, description="sent as JSON; $(FLEETCTL_NEW_MODEL_DIR) in its strings is the folder with the new weights")


class Reload(Authored):
    """How an engine loads other weights while it runs."""

    http: HttpReload = Field(description="a request to the engine of rank 0")


class Update(Authored):
    """What happens when running replicas have a different spec than the file; no mode ends a replica."""

    mode: Mode = Field(
        "keep", description="keep = outdated replicas count toward the target; surge = they do not, and current ones "
                            "are created beside them; inPlace = as keep, but if only weights have changed, engines "
                            "reload them")
    surge: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        1, description="with surge: the most replicas beyond the target at any time")
    reload: Reload | None = Field(None, description="with inPlace: how an engine loads other weights")
