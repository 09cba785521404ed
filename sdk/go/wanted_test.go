package leasehold

import "testing"

func TestAWatchSeesAllThatCouldBeInConflict(t *testing.T) {
	for wanted, names := range map[string][]string{
		"":         nil,
		"job/x":    {"job/x"},
		"job/":     {"job/x", "job/y", "job/xy"},
		"path:/":   {"path:/srv/a"},
		"inode:42": {"inode:42@0..10", "inode:42@20.."},
		"ä":        {"äö", "äü"},
	} {
		var claims []Claim
		for _, name := range names {
			claims = append(claims, Claim{Lock: name})
		}
		if got := prefixOfAll(claims); got != wanted {
			t.Errorf("%v: %q, not %q", names, got, wanted)
		}
	}
}
