//! The longest time of an option.

use std::time::Duration;

/// Longest time of any option. All deadlines that are computed from options are far below the end of time.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(365 * 86_400);

/// An option of a recipe is longer than 365 days.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{option}` is at most 365 days, here it is {time:?}")]
#[non_exhaustive]
pub struct TooLong {
    /// The name of the option.
    pub option: &'static str,
    /// Its value.
    pub time: Duration,
}

/// Refuses the first of these options that is too long.
pub(crate) fn check_times(options: &[(&'static str, Duration)]) -> Result<(), TooLong> {
    match options.iter().find(|(_, time)| *time > MAX_TIME) {
        Some(&(option, time)) => Err(TooLong { option, time }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_bound_that_is_stated() {
        let (day, longest) = (Duration::from_secs(86_400), MAX_TIME + Duration::from_nanos(1));
        assert_eq!(check_times(&[("a", day), ("b", MAX_TIME)]), Ok(()));
        let error = check_times(&[("a", day), ("b", longest)]).expect_err("it is too long");
        assert_eq!(error, TooLong { option: "b", time: longest });
        assert_eq!(error.to_string(), "`b` is at most 365 days, here it is 31536000.000000001s");
    }
}
