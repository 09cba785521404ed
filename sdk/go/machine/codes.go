package machine

import "slices"

// retryable codes: the same request may well succeed a little later.
var retryable = []string{
	"lock_held", "reclaim_window", "request_timeout", "too_many_waiters", "session_limit", "quota_exceeded", "rate_limited",
	"grace_period", "store_unavailable", "not_leader", "draining", "overloaded", "audit_unavailable", "interrupted",
}

var decided = []string{"lock_held", "reclaim_window", "too_many_waiters", "session_limit", "quota_exceeded"}

var leaseIsOver = []string{"not_holder", "lease_lost", "session_not_found"}

// denied codes: the server does not let the caller in, who may have a better token soon. A lease stands all the same.
var denied = []string{"unauthenticated", "permission_denied"}

// IsDenied says whether the server does not let the caller in.
func IsDenied(code string) bool { return slices.Contains(denied, code) }

// IsRetryable says whether the same request may well succeed a little later.
func IsRetryable(code string) bool { return slices.Contains(retryable, code) }

// SaysNothingOfTheLock says whether the refusal leaves open what was asked: it may be decided a little later, or elsewhere.
func SaysNothingOfTheLock(code string) bool {
	return code == "internal" || (IsRetryable(code) && !slices.Contains(decided, code))
}

// SaysNothingOfTheLease says the same for what is held already: a server that has too much to do has not ended the lease.
func SaysNothingOfTheLease(code string) bool {
	return SaysNothingOfTheLock(code) || code == "quota_exceeded"
}
