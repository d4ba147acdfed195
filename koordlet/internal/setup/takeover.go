// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/kernel/apply"
)

// takeover waits for the newest spec to come into force: the engine goes by it, and the kernel has been read.
type takeover struct {
	// proven is how long a spec may take from the engine to the kernel: as long as koordlet leaves to those who go first, two of its looks at
	// what they have done, and one more.
	proven     time.Duration
	uid        string
	generation int64
	// since is when the object came, or when the engine last went by it.
	since time.Time
	// view is the engine's first View with it, as of began; 0 while there is none.
	view  uint64
	began time.Time
	// stands: the kernel had all of it. What is written over it later is drift, which is repaired and told as that.
	stands bool
	// wrong is what was missing when that was told, at readAt.
	wrong  string
	readAt time.Time
}

// takeoverTime is how long a new spec may take from the object to the engine, over the handoff. Once something was told to be missing, all is
// read back every againTime.
const (
	takeoverTime = 10 * time.Second
	againTime    = 10 * time.Second
)

// look tells what is wrong with a spec that is not in force, when it ought to be; told is false while there is nothing to say yet. pending:
// the engine does not go by it, so an older one is in force, or none. view is the generation of the engine's present View, and follows says
// that it has this spec; missing says what the View of that generation asks for and the kernel has not, "" for nothing.
func (t *takeover) look(
	now time.Time, o *slo.Strategy, source string, view uint64, follows bool, missing func(view uint64) string,
) (problem string, pending, told bool) {
	if o.UID != t.uid || o.Generation != t.generation {
		*t = takeover{proven: t.proven, uid: o.UID, generation: o.Generation, since: now}
	}
	if source != sourceHandoff || !follows {
		t.view, t.stands = 0, false
		switch {
		case now.Sub(t.since) < takeoverTime:
			return "", false, false
		case source != sourceHandoff:
			return "the node's strategy comes from elsewhere: " + source, true, true
		}
		return "the spec has not reached the engine: koordlet's log says why the handoff cannot be written or read", true, true
	}
	t.since = now
	if t.stands {
		return "", false, true
	}
	if t.view == 0 {
		t.view, t.began, t.wrong = view, now, ""
	}
	if t.wrong != "" && now.Sub(t.readAt) < againTime {
		return t.wrong, false, true
	}
	problem = missing(t.view)
	switch {
	case problem == "":
		t.stands = true
	case now.Sub(t.began) < t.proven:
		return "", false, false
	}
	t.wrong, t.readAt = problem, now
	return problem, false, true
}

// missing says what of the strategy that the engine has gone by since View view is not in the kernel, as far as it bears on pods and
// containers; "" when all of it is.
func (d *Daemon) missing(view uint64) string {
	if d.host.Engine.Repaired() < view {
		return "pods and containers have not been gone through yet"
	}
	if d.ward.Holding() {
		return unlike(d.ward.Missing())
	}
	return unlike(d.host.Engine.Unlike())
}

// named bounds how many values a condition names.
const named = 3

// unlike is "2 values are not in the kernel: cpu.cfs_burst_us of container default/web/app: want 20000, got 10000; …".
func unlike(bad []apply.Mismatch) string {
	if len(bad) == 0 {
		return ""
	}
	var names []string
	for i := range bad {
		names = append(names, bad[i].String())
	}
	slices.Sort(names) // else the order is another at each look, and the status would be written each time
	if len(names) > named {
		names = append(names[:named], fmt.Sprintf("and %d more", len(names)-named))
	}
	n := "1 value is"
	if len(bad) > 1 {
		n = fmt.Sprintf("%d values are", len(bad))
	}
	return n + " not in the kernel: " + strings.Join(names, "; ")
}
