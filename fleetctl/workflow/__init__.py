"""Steps shared by `plan`, `apply`, `ci` and the questions: read fleet and cluster, plan, compare, save and check."""
