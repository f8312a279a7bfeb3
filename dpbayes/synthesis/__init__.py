"""From a schema, a mechanism and a model to a release."""
