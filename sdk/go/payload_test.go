package leasehold

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"leasehold.example/sdk/go/machine"
)

func bodyOf(t *testing.T, one asked) JSON {
	t.Helper()
	var body JSON
	if err := json.Unmarshal(one.body, &body); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestAWaitIsCutAndGoesOnWithItsTicket(t *testing.T) {
	p := &payload{claims: []Claim{{Lock: "a"}}, owner: "o", requestID: "r", ttl: 1500 * time.Microsecond}
	for wait, wanted := range map[time.Duration]float64{0: 0, time.Microsecond: 1, 49 * time.Second: 49_000, time.Hour: 50_000, Forever: 50_000} {
		asks := p.asks(machine.Request{Kind: machine.Acquire, Wait: wait, Ticket: "t"}, grant{})
		body := bodyOf(t, asks[0])
		if len(asks) != 1 || body["wait_ms"] != wanted || body["ticket"] != "t" || body["request_id"] != "r" || body["ttl_ms"] != 2.0 {
			t.Errorf("%v: %v", wait, body)
		}
	}
}

func TestASetUnderASessionIsGivenBackWithoutEndingTheSession(t *testing.T) {
	release := machine.Request{Kind: machine.Release}
	bytes := &payload{form: formSet, session: "s", claims: []Claim{{Lock: "inode:7@0..10"}, {Lock: "inode:7@20..30"}}}
	if asks := bytes.asks(release, grant{token: 9}); len(asks) != 2 || !strings.Contains(asks[1].path, "/release") || bodyOf(t, asks[1])["fencing_token"] != 9.0 {
		t.Error(asks)
	}
	named := &payload{form: formSet, session: "s", claims: []Claim{{Lock: "inode:7"}, {Lock: "a"}, {Lock: "b"}}}
	if asks := named.asks(release, grant{}); len(asks) != 1 || asks[0].path != "/v1/locks/a/release" {
		t.Error(asks)
	}
	alone := &payload{form: formSet, claims: named.claims}
	if asks := alone.asks(release, grant{leaseID: "l"}); len(asks) != 1 || asks[0].method != "DELETE" || asks[0].path != "/v1/sessions/l" {
		t.Error(asks)
	}
}
