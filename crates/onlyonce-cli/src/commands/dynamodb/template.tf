# The table of a store of onlyonce, and the least policy that works.
resource "aws_dynamodb_table" "onlyonce" {
  name                        = "@TABLE@"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "shard_key"
    type = "S"
  }

  attribute {
    name = "trail_key"
    type = "S"
  }

  attribute {
    name = "trail_shard"
    type = "S"
  }

  attribute {
    name = "trail_place"
    type = "S"
  }

  global_secondary_index {
    name            = "pending"
    hash_key        = "shard_key"
    range_key       = "pk"
    projection_type = "KEYS_ONLY"
  }

  # Of the audit trail. Without one they are empty and cost nothing, or can be left out.
  global_secondary_index {
    name            = "trail_by_operation"
    hash_key        = "trail_key"
    range_key       = "trail_place"
    projection_type = "ALL"
  }

  global_secondary_index {
    name            = "trail_by_time"
    hash_key        = "trail_shard"
    range_key       = "trail_place"
    projection_type = "ALL"
  }

  ttl {
    attribute_name = "expires_s"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }
}

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_iam_policy_document" "onlyonce" {
  statement {
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:DeleteItem",
      "dynamodb:DescribeContinuousBackups",
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
      "dynamodb:GetItem",
      "dynamodb:PutItem",
      "dynamodb:Query",
      "dynamodb:Scan",
      "dynamodb:UpdateItem",
    ]
    resources = [
      aws_dynamodb_table.onlyonce.arn,
      "${aws_dynamodb_table.onlyonce.arn}/index/*",
    ]
  }
  statement {
    actions   = ["dynamodb:DescribeGlobalTable"]
    resources = ["arn:${data.aws_partition.current.partition}:dynamodb::${data.aws_caller_identity.current.account_id}:global-table/${aws_dynamodb_table.onlyonce.name}"]
  }
}

resource "aws_iam_policy" "onlyonce" {
  name        = "@TABLE@-onlyonce"
  description = "What the gateways of onlyonce need"
  policy      = data.aws_iam_policy_document.onlyonce.json
}

output "policy_arn" {
  value = aws_iam_policy.onlyonce.arn
}
