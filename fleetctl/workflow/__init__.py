"""What `plan`, `apply`, `ci` and the questions share: read the fleet and the cluster, plan, compare, save and check."""
