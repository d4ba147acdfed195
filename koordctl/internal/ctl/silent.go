// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// silence is how old the status of a daemon that works may be. It is written every five seconds; a machine that has no CPU for
// it six times over is not well either.
const silence = 30 * time.Second

// halted says how a daemon that lives does not work, "" for one that does. Its file says "connected" as before, and nobody
// takes that back: a process that does not run writes nothing.
func (e *env) halted(s *status.Entry) string {
	switch age := s.Age(e.clock(), boottime.Now()); {
	case !s.Alive:
		return ""
	case s.Stopped:
		return "is stopped by a signal (SIGSTOP) or a debugger"
	case age > silence:
		return "runs, but has written no status for " + span(age) + ", which it does every 5 s"
	}
	return ""
}

// silent is halted with what follows from it for the node, and what to do next.
func (e *env) silent(d *daemon, s *status.Entry) (what, next string) {
	what = e.halted(s)
	switch {
	case what == "":
		return "", ""
	case s.Stopped:
		next = fmt.Sprintf("kill -CONT %d, and it repairs what came meanwhile; or systemctl restart %s", s.PID, d.program)
	default:
		next = fmt.Sprintf("systemctl thaw %[1]s when its unit is frozen, else systemctl restart %[1]s; values of running containers stand meanwhile", d.program)
	}
	return what + ": " + d.missed, next
}

// warnSilent writes to standard error who does not work and what to do, beside answers that stay right without them: the ledger
// and the kernel are. It returns ErrFound when there is somebody.
func (e *env) warnSilent() error {
	var found error
	for _, d := range e.installed() {
		if d.status == nil || d.status.Err != "" {
			continue
		}
		if what, next := e.silent(&d.daemon, d.status); what != "" {
			fmt.Fprintf(e.err, "koordctl: %s (pid %d) %s\n  what to do: %s\n", d.program, d.status.PID, what, next)
			found = ErrFound
		}
	}
	return found
}
