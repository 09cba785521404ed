package leasehold

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"leasehold.example/sdk/go/machine"
)

const (
	watchPause = 200 * time.Millisecond
	// silenceMax is three heartbeats of a server that has nothing to say.
	silenceMax   = 45 * time.Second
	eventsAhead  = 1024
	lineBytesMax = 1 << 20
)

// Event is what happened: Type is granted, ended, queued, left, deadlock, fence_accepted, … or resync, where events were
// missed on the way: look at the locks again. Body has all of it.
type Event struct {
	Type     string          `json:"type"`
	Revision uint64          `json:"revision"`
	Cursor   string          `json:"cursor"`
	Lock     string          `json:"lock"`
	Body     json.RawMessage `json:"-"`
}

// Watch is events as they happen. It goes on after the last one when the connection breaks, the server restarts or another
// one leads. An error is final.
type Watch struct {
	keeper *keeper
	query  string
	after  string
	hasGap bool
	cancel context.CancelFunc
	events chan Event

	began chan struct{}
	once  sync.Once
	ended chan struct{}
	err   error
}

// Watch follows what happens to locks whose canonical name starts with the prefix, from now on. When it returns, nothing
// that happens from then on is missed, unless a resync says so. It ends with the context.
func (c *Client) Watch(ctx context.Context, prefix string) (*Watch, error) {
	return c.WatchAfter(ctx, prefix, "")
}

// WatchAfter is Watch from the cursor of an event or a list on.
func (c *Client) WatchAfter(ctx context.Context, prefix, cursor string) (*Watch, error) {
	if err := c.keeper.order(); err != nil {
		return nil, err
	}
	c.keeper.mu.Unlock()
	w := &Watch{
		keeper: c.keeper, query: "/v1/watch" + c.query + "&prefix=" + queryValue(prefix), after: cursor,
		events: make(chan Event, eventsAhead), began: make(chan struct{}), ended: make(chan struct{}),
	}
	ctx, w.cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(c.keeper.ctx, w.cancel)
	go func() {
		defer stop()
		defer close(w.ended)
		w.err = w.follow(ctx)
	}()
	select {
	case <-w.began:
		return w, nil
	case <-w.ended:
		return nil, w.err
	}
}

// Next is the next event.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	select {
	case event := <-w.events:
		return event, nil
	default:
	}
	select {
	case event := <-w.events:
		return event, nil
	case <-w.ended:
		return Event{}, w.err
	case <-ctx.Done():
		return Event{}, context.Cause(ctx)
	}
}

// Close ends it.
func (w *Watch) Close() { w.cancel() }

// final is an error that another try would meet with again.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

func (w *Watch) hasBegun() bool {
	select {
	case <-w.began:
		return true
	default:
		return false
	}
}

func (w *Watch) follow(ctx context.Context) error {
	since := time.Now()
	for {
		w.keeper.mu.Lock()
		to := w.keeper.pool
		w.keeper.mu.Unlock()
		err := w.stream(ctx, to)
		var ends final
		switch {
		case w.keeper.ctx.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &ends):
			return ends.error
		case err != nil && !w.hasBegun() && time.Since(since) >= w.keeper.settings.Patience:
			return err
		}
		if err := pause(ctx, watchPause); err != nil && w.keeper.ctx.Err() == nil {
			return err
		}
	}
}

// stream is one connection's worth of events.
func (w *Watch) stream(ctx context.Context, from *pool) error {
	path := w.query
	if w.after != "" {
		path += "&after=" + queryValue(w.after)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(w.keeper.settings.Patience, cancel)
	defer silence.Stop()
	answer, failure := from.begin(ctx, asked{"GET", path, nil}, "text/event-stream", false)
	if failure != nil {
		if failure.failure == machine.Unsent {
			w.keeper.suspect(true, from.server)
		}
		return failure.unreachable()
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, lineBytesMax))
		return w.refused(answer.StatusCode, body)
	}
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return w.notOurs(answer.StatusCode)
	}
	scanner := bufio.NewScanner(answer.Body)
	scanner.Buffer(nil, lineBytesMax)
	silence.Reset(silenceMax)
	for scanner.Scan() {
		silence.Stop()
		if !w.takeIn(ctx, scanner.Bytes()) {
			return nil
		}
		silence.Reset(silenceMax)
	}
	return nil
}

func (w *Watch) refused(status int, body []byte) error {
	problem := readProblem(status, body)
	switch {
	case problem == nil:
		return w.notOurs(status)
	case problem.Code == "revision_compacted":
		w.loseTrack()
		return nil
	case status >= 500 || status == 429:
		return problem.kind()
	}
	return final{problem.kind()}
}

// notOurs: in place of a server that was there before, something else may stand in for a while.
func (w *Watch) notOurs(status int) error {
	if w.hasBegun() {
		return unreadable(status)
	}
	return final{unreadable(status)}
}

// loseTrack goes on from now, whatever was before.
func (w *Watch) loseTrack() { w.after, w.hasGap = "", true }

// takeIn reads one line of the stream; false when it is to be begun anew.
func (w *Watch) takeIn(ctx context.Context, line []byte) bool {
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	var event Event
	if !isData || json.Unmarshal(data, &event) != nil || event.Type == "" {
		return true
	}
	event.Body = bytes.Clone(bytes.TrimSpace(data))
	w.once.Do(func() { close(w.began) })
	after := w.after
	if event.Cursor != "" {
		after = event.Cursor
	}
	switch {
	case event.Type == "resync":
		w.loseTrack()
		return false
	case event.Type == "bookmark" && !w.hasGap:
		w.after = after
		return true
	case event.Type == "bookmark":
		// From here on nothing is missed: who looks at the locks now knows everything.
		w.hasGap, event.Type = false, "resync"
	}
	select {
	case w.events <- event:
	case <-ctx.Done():
		return false
	}
	w.after = after
	return true
}
