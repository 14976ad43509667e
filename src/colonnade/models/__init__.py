"""Networks of the parties: encoders, heads, and cohorts that run many of them as one."""
