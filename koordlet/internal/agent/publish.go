// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import "github.com/koord-rt/koord-rt/koordlet/internal/pods"

// publish hands on what was decided and who is here.
func (a *Agent) publish(l *Look, snapshot *pods.Snapshot) {
	err := a.alone()
	a.trouble("publish", err)
	if err != nil {
		l.Unpublished, l.Withheld = err, err
		return
	}
	_, l.Withheld = a.o.Publisher.Dynamic(l.Outcome.Dynamic, l.Wall)
	a.trouble("publish dynamic state", l.Withheld)
	if spec := a.o.Strategy(); spec != a.strategy {
		if _, err = a.o.Publisher.Strategy(spec, l.Wall); err == nil {
			a.strategy = spec
		}
		l.Unpublished = err
		a.trouble("publish strategy", err)
	}
	l.Unkept = a.o.Publisher.Keep(l.Wall)
	a.trouble("keep strategy", l.Unkept)
	if snapshot.Generation != 0 && snapshot.Generation != a.podsGen {
		if _, err = a.o.Publisher.Pods(snapshot.Specs(), l.Wall); err == nil {
			a.podsGen = snapshot.Generation
		}
		a.trouble("publish pods", err)
	}
}
