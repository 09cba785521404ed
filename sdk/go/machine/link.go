package machine

import "time"

// Up says that the connection stands; requests can be sent over it.
func (m *Machine) Up(now time.Duration, link int) {
	m.workOff(now)
	if m.link != link || m.isUp {
		return
	}
	m.isUp, m.heard, m.linkUntil = true, now, Never
	m.sendWhatIsInLine(now)
}

// Down says that the connection broke, or could not be made.
func (m *Machine) Down(now time.Duration, link int) {
	m.workOff(now)
	if m.link == link {
		m.servers.rotate()
		m.dropLink(now)
	}
}

// Suspect says that something that was asked beside the machine failed: another server may do better, if there is one.
func (m *Machine) Suspect(now time.Duration) {
	m.workOff(now)
	if m.isUp && m.link != 0 {
		m.tryAnother(now, m.link)
	}
}

// SuspectIfIdle says the same, unless something is held: then its heartbeats decide.
func (m *Machine) SuspectIfIdle(now time.Duration) {
	if !m.isAnythingHeld() {
		m.Suspect(now)
	}
}

// sendWhatIsInLine: what keeps leases goes first. A crowd of waiters must not cost a holder its lease.
func (m *Machine) sendWhatIsInLine(now time.Duration) {
	line := m.line
	m.line = nil
	var keeping, others []Key
	for _, key := range line {
		isKeeping := false
		if e := m.entries.get(key); e != nil {
			switch e.phase.(type) {
			case *held, *confirming, *releasing:
				isKeeping = true
			}
		}
		if isKeeping {
			keeping = append(keeping, key)
		} else {
			others = append(others, key)
		}
	}
	for _, key := range append(keeping, others...) {
		if e := m.entries.get(key); e != nil && e.isInLine {
			e.isInLine = false
			m.sendAgain(now, key, e)
			m.rearm(key)
		}
	}
}

// sendAgain sends what the entry has to send now.
func (m *Machine) sendAgain(now time.Duration, key Key, e *entry) {
	switch e.phase.(type) {
	case *acquiring:
		m.sendAcquire(now, key)
	case *confirming, *held:
		m.sendBeat(now, key)
	case *releasing:
		m.sendRelease(now, key)
	case *abandoned:
		m.sendToFindOut(now, key)
	}
}

// dropLink gives the connection up and makes the next one, to the server that is then the current one.
func (m *Machine) dropLink(now time.Duration) {
	wasUp, link, tries := m.isUp, m.link, m.linkTries
	m.linkTries = min(tries+1, 1<<20)
	// Each server gets one try at once; then it is their turn to come back.
	rounds := (tries + 1) / len(m.servers.addresses)
	until := now
	if !(wasUp && tries == 0) && rounds > 0 {
		until = now + m.backoff(rounds-1)
	}
	m.link, m.isUp, m.linkUntil = 0, false, until
	if link != 0 {
		for _, of := range m.calls.keys() {
			if sent := m.calls.get(of); sent != nil && sent.link == link {
				m.calls.remove(of)
				m.callFailed(now, of, sent, Unknown)
			}
		}
	}
	m.reconnectIfDue(now)
}

func (m *Machine) reconnectIfDue(now time.Duration) {
	if m.isUp || m.linkUntil > now {
		return
	}
	if m.link != 0 {
		// It took too long.
		m.servers.rotate()
		m.dropLink(now)
		return
	}
	m.links++
	m.link, m.linkUntil = m.links, now+m.settings.ConnectTimeout
	m.actions = append(m.actions, Connect{m.links, m.Server()})
}

func (m *Machine) isAnythingHeld() bool {
	for _, one := range m.entries.places {
		if one.value != nil {
			if _, isHeld := one.value.phase.(*held); isHeld {
				return true
			}
		}
	}
	return false
}

// overdue: the answer to a request is overdue. A server that answers others is slow. One that answers nobody is gone, and
// another may be there. If something is held, its heartbeats decide that.
func (m *Machine) overdue(now time.Duration, of Key) {
	sent := m.calls.get(of)
	if sent != nil && m.isUp && m.heard <= sent.sent && !m.isAnythingHeld() {
		m.tryAnother(now, sent.link)
	}
}

// tryAnother: another server may do better.
func (m *Machine) tryAnother(now time.Duration, link int) {
	if len(m.servers.addresses) > 1 && m.link == link {
		m.servers.rotate()
		m.dropLink(now)
	}
}

func (m *Machine) follow(now time.Duration, link int, hint string) {
	if hint == "" {
		m.tryAnother(now, link)
	} else if m.link == link && m.servers.follow(hint) {
		m.dropLink(now)
	}
}

func (m *Machine) heardFrom(now time.Duration, link int) {
	if m.isUp && m.link == link {
		m.heard = now
		// Only what answers is a server: one that accepts and closes is tried as rarely as one that is not there.
		m.linkTries = 0
	}
}
