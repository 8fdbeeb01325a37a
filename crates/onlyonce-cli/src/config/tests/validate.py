"""Tells which texts of TOML a JSON Schema takes. Reads {"schema", "texts"}, writes for each text null or what is wrong."""

import json
import sys
import tomllib

try:
    import jsonschema
except ImportError:
    sys.exit(3)

asked = json.load(sys.stdin)
jsonschema.Draft7Validator.check_schema(asked["schema"])
validator = jsonschema.Draft7Validator(asked["schema"])


def wrong(text):
    return next((error.message for error in validator.iter_errors(tomllib.loads(text))), None)


json.dump([wrong(text) for text in asked["texts"]], sys.stdout)
