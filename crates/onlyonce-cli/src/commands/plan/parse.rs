//! Rates, percentages and stores as people write them.

use super::Kind;

pub(super) fn rate(text: &str) -> Result<f64, &'static str> {
    let (number, unit) = text.split_once('/').unwrap_or((text, ""));
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(RATE),
    };
    let number = number.parse().ok().filter(|number| (0.0..=RATE_MAX).contains(number));
    Ok(number.ok_or(RATE)? / seconds)
}

pub(super) fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
    number.filter(|number| (0.0..100.0).contains(number)).ok_or(PERCENT)
}

/// By its name or an address.
pub(super) fn store(text: &str) -> Result<Kind, &'static str> {
    match text.split(':').next().unwrap_or_default() {
        "sqlite" => Ok(Kind::Sqlite),
        "postgres" | "postgresql" => Ok(Kind::Postgres),
        "redis" | "rediss" => Ok(Kind::Redis),
        "dynamodb" => Ok(Kind::DynamoDb),
        _ => Err(STORE),
    }
}

const RATE: &str = "a rate is a number and one of /s, /m, /h, /d, such as \"1000/s\"";
const RATE_MAX: f64 = 1e12;
const PERCENT: &str = "a share is a number from 0 to below 100 and %, such as \"5%\"";
const STORE: &str = "a store is sqlite, postgres, redis or dynamodb";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_are_a_number_and_a_unit() {
        assert_eq!([rate("1000/s"), rate("60/m"), rate("0.5/s")], [Ok(1000.0), Ok(1.0), Ok(0.5)]);
        assert_eq!(percent("5%"), Ok(5.0));
        for wrong in ["", "5", "/s", "5/w", "-1/s", "NaN/s", "inf/s"] {
            assert_eq!(rate(wrong), Err(RATE), "{wrong}");
        }
        for wrong in ["", "5", "100%", "-1%", "NaN%"] {
            assert_eq!(percent(wrong), Err(PERCENT), "{wrong}");
        }
    }
}
