package leasehold

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"
)

// wantedPause is between two looks at a queue that cannot be watched.
const wantedPause = time.Second

// Wanted is closed when somebody waits in line for what this lease holds, or for a part of it: a good moment to give it
// back early. Whoever waits may have left again meanwhile. Of a session, it is closed when anything under it is wanted. A
// lease that ends before leaves it open.
func (l *Lease) Wanted() <-chan struct{} {
	wanted := make(chan struct{})
	// Only what does not hold the lease itself: it may be dropped.
	go l.client.closeWhenWanted(l.item.belief.ctx, wanted, l.item.payload.claims, l.ID())
	return wanted
}

func (c *Client) closeWhenWanted(ctx context.Context, wanted chan<- struct{}, claims []Claim, id string) {
	for ctx.Err() == nil {
		// Watched before it is looked at, so that nobody comes in between.
		if watch, err := c.Watch(ctx, prefixOfAll(claims)); err == nil {
			isWanted := c.followQueue(ctx, watch, claims, id)
			watch.Close()
			if isWanted {
				close(wanted)
				return
			}
		}
		_ = pause(ctx, wantedPause)
	}
}

// followQueue says whether somebody waits; false if that cannot be watched any more.
func (c *Client) followQueue(ctx context.Context, watch *Watch, claims []Claim, id string) bool {
	for {
		if c.isWaitedFor(ctx, claims, id) {
			return true
		}
		for {
			event, err := watch.Next(ctx)
			if err != nil {
				return false
			}
			if event.Type == "queued" || event.Type == "resync" {
				break
			}
		}
	}
}

// isWaitedFor asks the server. No answer is no reason to give anything back.
func (c *Client) isWaitedFor(ctx context.Context, claims []Claim, id string) bool {
	if len(claims) == 0 {
		said, _ := c.API().List(ctx, url.Values{"session_id": {id}})
		locks, _ := said["locks"].([]any)
		for _, one := range locks {
			if lock, _ := one.(JSON); hasWaiters(lock) {
				return true
			}
		}
		return false
	}
	for _, claim := range claims {
		if said, err := c.API().Get(ctx, claim.Lock); err == nil && hasWaiters(said) {
			return true
		}
	}
	return false
}

func hasWaiters(lock JSON) bool {
	count, _ := lock["waiters_total"].(json.Number)
	return count != "" && count != "0"
}

// prefixOfAll is what the names of everything that could be in conflict with these locks begin with.
func prefixOfAll(claims []Claim) string {
	if len(claims) == 0 {
		return ""
	}
	prefix := prefixOf(claims[0].Lock)
	for _, claim := range claims[1:] {
		for !strings.HasPrefix(prefixOf(claim.Lock), prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return strings.ToValidUTF8(prefix, "")
}

func prefixOf(lock string) string {
	switch {
	case strings.HasPrefix(lock, "path:"):
		return "path:/"
	case strings.HasPrefix(lock, "inode:"):
		inode, _, _ := strings.Cut(lock, "@")
		return inode
	}
	return lock
}
