//! `onlyonce dynamodb template`: the table of a store, for the tools that make tables.

use std::process::ExitCode;

use clap::ValueEnum;

use super::access::print;

/// Describe the table that a store in DynamoDB needs.
#[derive(Debug, clap::Subcommand)]
pub enum DynamoDb {
    /// Print the table and the least policy that works, for CloudFormation or Terraform
    Template(Template),
}

/// What is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Template {
    /// The name of the table
    #[arg(long, value_name = "TABLE", default_value = "onlyonce", value_parser = table)]
    table: String,
    /// For which tool
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// A template of CloudFormation, in YAML
    #[default]
    Cloudformation,
    /// A module of Terraform, or OpenTofu
    Terraform,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce dynamodb template --table keys > keys.yaml
  onlyonce dynamodb template --table keys --format terraform > keys.tf";

impl DynamoDb {
    /// Prints it.
    pub fn run(self) -> ExitCode {
        let Self::Template(template) = self;
        let printed = print(&template.text());
        printed.map_or_else(|failed| failed.exit(), |_| ExitCode::SUCCESS)
    }
}

impl Template {
    fn text(&self) -> String {
        let text = match self.format {
            Format::Cloudformation => include_str!("dynamodb/template.yaml"),
            Format::Terraform => include_str!("dynamodb/template.tf"),
        };
        text.replace("@TABLE@", &self.table)
    }
}

fn table(text: &str) -> Result<String, &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    match (3..=255).contains(&text.len()) && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("a table has 3 to 255 letters, digits and _ - ."),
    }
}
