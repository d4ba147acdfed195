// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"cmp"

	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
)

// publish hands on what was decided and who is here. What the loops decided goes by the dynamic state alone: a strategy or pods that have vanished
// and cannot be written again withhold nothing of it.
func (a *Agent) publish(l *Look, snapshot *pods.Snapshot) {
	err := a.alone()
	a.trouble("publish", err)
	if err != nil {
		l.Unpublished, l.Withheld = err, err
		return
	}
	_, l.Withheld = a.o.Publisher.Dynamic(l.Outcome.Dynamic, l.Wall)
	a.trouble("publish dynamic state", l.Withheld)
	var strategy, listed error
	if spec := a.o.Strategy(); spec != a.strategy {
		if _, strategy = a.o.Publisher.Strategy(spec, l.Wall); strategy == nil {
			a.strategy = spec
		}
	}
	if snapshot.Generation != 0 && snapshot.Generation != a.podsGen {
		if _, listed = a.o.Publisher.Pods(snapshot.Specs(), l.Wall); listed == nil {
			a.podsGen = snapshot.Generation
		}
	}
	// What is new has the first word: the same directory takes neither, most likely.
	again, listedAgain := a.o.Publisher.Again(l.Wall)
	l.Unpublished = cmp.Or(strategy, again)
	a.trouble("publish strategy", l.Unpublished)
	a.trouble("publish pods", cmp.Or(listed, listedAgain))
	l.Unkept = a.o.Publisher.Keep(l.Wall)
	a.trouble("keep strategy", l.Unkept)
}
