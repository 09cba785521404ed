package leasehold

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Names and errors are those of the server: sdk/vectors.

func table(t *testing.T, name string) []JSON {
	t.Helper()
	folder := os.Getenv("LEASEHOLD_VECTORS")
	if folder == "" {
		folder = filepath.Join("..", "vectors")
	}
	opened, err := os.Open(filepath.Join(folder, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var rows []JSON
	for scanner := bufio.NewScanner(opened); scanner.Scan(); {
		var row JSON
		if err := json.Unmarshal(scanner.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatal("an empty table")
	}
	return rows
}

func TestNamesStandInAPathAsTheServerReadsThem(t *testing.T) {
	canonical := map[any]bool{}
	for _, row := range table(t, "names") {
		canonical[row["canonical"]] = true
		if got := pathPart(row["name"].(string)); got != row["path"] {
			t.Errorf("%q: %q, not %q", row["name"], got, row["path"])
		}
	}
	for _, text := range []string{Subtree("/srv/a"), ByteRange(42, 100, 200), BytesFrom(42, 100), BytesFrom(42, 0)} {
		if !canonical[text] {
			t.Errorf("%s is not canonical", text)
		}
	}
}

func kindOf(err error) string {
	var held *HeldError
	var deadlock *DeadlockError
	var stale *StaleFenceError
	var refused *RefusedError
	switch {
	case errors.As(err, &held):
		return "held"
	case errors.As(err, &deadlock):
		return "deadlock"
	case errors.As(err, &stale):
		return "stale_fence"
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, ErrUnreachable):
		return "unreachable"
	}
	return "none"
}

func TestBodiesAreTheErrorsThatTheyShouldBe(t *testing.T) {
	for _, row := range table(t, "problems") {
		_, err := readBody(int(row["status"].(float64)), []byte(row["body"].(string)))
		wanted := row["error"].(JSON)
		code, _ := wanted["code"].(string)
		if kindOf(err) != wanted["kind"] || CodeOf(err) != code || string(OutcomeOf(err)) != wanted["outcome"] {
			t.Errorf("%v: %v, %s, %s", row, err, kindOf(err), OutcomeOf(err))
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			if reason, _ := wanted["reason"].(string); refused.Reason != reason {
				t.Errorf("%v: for the reason %q", row, refused.Reason)
			}
			after, _ := wanted["retry_after_ms"].(float64)
			if refused.RetryAfter != time.Duration(after)*time.Millisecond || refused.hasHint != (wanted["retry_after_ms"] != nil) {
				t.Errorf("%v: try again after %v", row, refused.RetryAfter)
			}
			if errors.Is(err, ErrUnreachable) {
				t.Errorf("%v is refused and unreachable", row)
			}
		}
		var held *HeldError
		if errors.As(err, &held) && (held.Holders[0].OwnerID != "worker-1" || held.Waiters != 2 || held.Ticket != "t-1") {
			t.Errorf("%+v", held)
		}
		var deadlock *DeadlockError
		if errors.As(err, &deadlock) && (len(deadlock.Cycle) != 2 || deadlock.Cycle[0] != WaitEdge{"a", "x", "b"}) {
			t.Errorf("%+v", deadlock)
		}
		var stale *StaleFenceError
		if errors.As(err, &stale) && stale.HighWater != 41 {
			t.Errorf("%+v", stale)
		}
	}
}

func TestServersAreReadOneOrSeveral(t *testing.T) {
	got, err := parseServers("a:1, http://b:2/,[::1]:3,https://c")
	if want := []string{"http://a:1", "http://b:2", "http://[::1]:3", "https://c:443"}; err != nil || len(got) != 4 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Error(got, err)
	}
	for _, wrong := range []string{"", " , ", "ftp://a:1", "http://a:1/x", "http://", "http://a b:1", "http://u@a:1", "http://a:x"} {
		if got, err := parseServers(wrong); err == nil {
			t.Errorf("%q: %v", wrong, got)
		}
	}
}

func TestAFenceTurnsStaleTokensAway(t *testing.T) {
	var fence Fence
	if fence.Accept(34) != nil || fence.Accept(34) != nil {
		t.Error("a token that is not stale was refused")
	}
	var stale *StaleFenceError
	if err := fence.Accept(33); !errors.As(err, &stale) || stale.HighWater != 34 {
		t.Error(err)
	}
}
