package machine

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// The machine does what that of the Rust SDK does, step by step: sdk/vectors.

type line = map[string]any

func folder() string {
	if given := os.Getenv("LEASEHOLD_VECTORS"); given != "" {
		return given
	}
	return filepath.Join("..", "..", "vectors")
}

func linesOf(t *testing.T, file string) []line {
	t.Helper()
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var lines []line
	scanner := bufio.NewScanner(opened)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		var one line
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, one)
	}
	return lines
}

func ms(of any) time.Duration {
	if of == nil {
		return Never
	}
	return time.Duration(of.(float64)) * time.Millisecond
}

func text(of any) string {
	said, _ := of.(string)
	return said
}

func problemOf(said line) *Problem {
	found := &Problem{Code: text(said["code"]), Outcome: text(said["outcome"]), Reason: text(said["reason"]), Ticket: text(said["ticket"]), Leader: text(said["leader"]), RetryAfter: -1}
	if hint, isThere := said["recommended_retry_ms"]; isThere && hint != nil {
		found.RetryAfter = ms(hint)
	}
	return found
}

// player plays a vector to the machine, and says what came of each step.
type player struct {
	t        *testing.T
	header   line
	machine  *Machine
	keys     map[string]Key
	names    map[Key]string
	calls    []Key
	standing line
}

func (p *player) play(step line) line {
	came := line{}
	if returned := p.putIn(ms(step["at"]), step); returned != nil {
		came["returns"] = *returned
	}
	out := []any{}
	for action := p.machine.NextAction(); action != nil; action = p.machine.NextAction() {
		out = append(out, p.said(action))
	}
	came["out"] = out
	standing := line{}
	for name, key := range p.keys {
		if found, stands := p.machine.Standing(key); stands {
			standing[name] = line{"since": p.millis(found.Since), "jeopardy_at": p.millis(found.JeopardyAt()), "lapses_at": p.millis(found.LapsesAt())}
		}
	}
	if !reflect.DeepEqual(standing, p.standing) {
		came["standing"], p.standing = standing, standing
	}
	return came
}

func (p *player) millis(of time.Duration) any {
	if of == Never {
		return nil
	}
	if of%time.Millisecond != 0 {
		p.t.Fatalf("%v are no whole milliseconds", of)
	}
	return float64(of / time.Millisecond)
}

func (p *player) putIn(now time.Duration, step line) *bool {
	if deeds, isDeed := step["do"].(line); isDeed {
		for deed, how := range deeds {
			given, _ := how.(line)
			return p.do(now, deed, given)
		}
	}
	if heard, is := step["hear"].(line); is {
		p.hear(now, heard)
	} else if failed, is := step["fail"].(line); is {
		p.machine.Failed(now, p.call(failed), Failure(text(failed["how"])))
	} else if up, is := step["up"].(line); is {
		p.machine.Up(now, int(up["link"].(float64)))
	} else if down, is := step["down"].(line); is {
		p.machine.Down(now, int(down["link"].(float64)))
	} else if step["wake"] == true {
		p.machine.Wake(now)
	} else {
		p.t.Fatalf("no input: %v", step)
	}
	return nil
}

func (p *player) call(said line) Key { return p.calls[int(said["call"].(float64))-1] }

func (p *player) do(now time.Duration, deed string, how line) *bool {
	key := p.keys[text(how["key"])]
	switch deed {
	case "start":
		p.start(now)
	case "acquire":
		ask := Ask{TTL: ms(how["ttl_ms"]), Wait: ms(how["wait_ms"]), IsKept: how["kept"] == true}
		if session, isUnder := how["session"]; isUnder {
			under := p.keys[text(session)]
			ask.Session = &under
		}
		name := text(how["key"])
		p.keys[name] = p.machine.Acquire(now, name, ask)
		p.names[p.keys[name]] = name
	case "release":
		done := p.machine.Release(now, key)
		return &done
	case "renew":
		done := p.machine.Renew(now, key)
		return &done
	case "abandon":
		p.machine.Abandon(now, key)
	case "start_heartbeat":
		p.machine.StartHeartbeat(now, key)
	case "suspect":
		p.machine.Suspect(now)
	case "suspect_if_idle":
		p.machine.SuspectIfIdle(now)
	default:
		p.t.Fatalf("no deed: %s", deed)
	}
	return nil
}

func (p *player) start(now time.Duration) {
	lengths := p.header["settings"].(line)
	settings := Settings{
		Patience: ms(lengths["patience_ms"]), AnswerTimeout: ms(lengths["answer_timeout_ms"]), ConnectTimeout: ms(lengths["connect_timeout_ms"]),
		BackoffFirst: ms(lengths["backoff_first_ms"]), BackoffMax: ms(lengths["backoff_max_ms"]),
		HeartbeatPart: map[string]time.Duration{"ttl/3": 3, "ttl/6": 6}[text(lengths["heartbeat"])],
	}
	var addresses []string
	for _, one := range p.header["servers"].([]any) {
		addresses = append(addresses, text(one))
	}
	jitter := map[string]Jitter{"full": Full, "least": Least}[text(p.header["jitter"])]
	p.machine = New(now, addresses, settings, jitter)
}

func (p *player) hear(now time.Duration, heard line) {
	if said, isLost := heard["lost"].(line); isLost {
		p.machine.Lost(now, p.keys[text(heard["key"])], problemOf(said))
		return
	}
	var answer Answer
	if granted, is := heard["granted"].(line); is {
		answer = Granted{ms(granted["ttl_ms"]), ms(granted["left_ms"])}
	} else if renewed, is := heard["renewed"].(line); is {
		answer = Renewed{ms(renewed["ttl_ms"]), ms(renewed["left_ms"])}
	} else if refused, is := heard["refused"].(line); is {
		answer = Refused{problemOf(refused)}
	} else if heard["released"] == true {
		answer = Released{}
	} else {
		p.t.Fatalf("nothing heard: %v", heard)
	}
	p.machine.Answer(now, p.call(heard), answer)
}

func (p *player) name(key Key) string {
	// What has ended in the same step is still spoken of.
	if _, isKnown := p.names[key]; !isKnown {
		p.names[key] = text(p.machine.Data(key))
	}
	return p.names[key]
}

func (p *player) said(action Action) line {
	switch a := action.(type) {
	case Connect:
		return line{"connect": line{"link": float64(a.Link), "address": a.Address}}
	case Send:
		p.calls = append(p.calls, a.Call)
		send := line{"call": float64(len(p.calls)), "key": p.name(a.Key), "request": string(a.Request.Kind)}
		if a.Request.Kind == Acquire {
			send["wait_ms"] = p.millis(a.Request.Wait)
			if a.Request.Ticket != "" {
				send["ticket"] = a.Request.Ticket
			}
		}
		return line{"send": send}
	case Cancel:
		for index, one := range p.calls {
			if one == a.Call {
				return line{"cancel": line{"call": float64(index + 1), "key": p.name(a.Key)}}
			}
		}
	case Tell:
		return line{"tell": line{"key": p.name(a.Key), "news": string(a.News)}}
	case End:
		end := line{"key": text(a.Data), "how": a.How.Kind}
		if a.How.Loss != "" {
			end["by"] = string(a.How.Loss)
		}
		if a.How.Problem != nil {
			end["code"], end["outcome"] = a.How.Problem.Code, a.How.Problem.Outcome
		}
		return line{"end": end}
	}
	p.t.Fatalf("an action without a name: %v", action)
	return nil
}

func TestMachineDoesWhatTheVectorsSay(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(folder(), "machine", "*.jsonl"))
	count := 0
	for _, file := range files {
		var playing *player
		for number, step := range linesOf(t, file) {
			if _, isHeader := step["vector"]; isHeader {
				count++
				playing = &player{t: t, header: step, keys: map[string]Key{}, names: map[Key]string{}, standing: line{}}
				continue
			}
			came, wanted := playing.play(step), line{}
			for _, what := range []string{"out", "returns", "standing"} {
				if said, isThere := step[what]; isThere {
					wanted[what] = said
				}
			}
			if !reflect.DeepEqual(came, wanted) {
				t.Fatalf("%s, line %d of %s\n step   %v\n came   %v\n wanted %v", playing.header["vector"], number+1, file, step, came, wanted)
			}
			// It may ask to be woken earlier, never later.
			if next := step["next"]; next != nil && playing.machine.NextWake() > ms(next) {
				t.Fatalf("%s, line %d of %s: woken at %v, not %v", playing.header["vector"], number+1, file, playing.machine.NextWake(), next)
			}
		}
	}
	if count <= 250 {
		t.Fatalf("only %d vectors", count)
	}
}

func TestCodesMeanWhatTheServerMeansByThem(t *testing.T) {
	for _, row := range linesOf(t, filepath.Join(folder(), "codes.jsonl")) {
		code := text(row["code"])
		if IsRetryable(code) != row["retryable"] || SaysNothingOfTheLock(code) != row["says_nothing_of_the_lock"] || SaysNothingOfTheLease(code) != row["says_nothing_of_the_lease"] || IsDenied(code) != row["is_denied"] {
			t.Errorf("%s: %v", code, row)
		}
	}
}
