// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import "github.com/koord-rt/koord-rt/model/unit"

// The state is kept at once when what is ours in the kernel or the tier's set changes, keepChanged after the last time when
// another decision has moved, and every keepEvery for what the loops have learned.
const (
	keepChanged = 10 * unit.Second
	keepEvery   = unit.Minute
)

// keep stores the state for the next life.
func (a *Agent) keep(now unit.Micros) {
	a.keptAt, a.unkept = now, false
	a.trouble("keep state", a.o.Keep(a.state))
}

func (a *Agent) keepNowAndThen(now unit.Micros) {
	if age := now - a.keptAt; age >= keepEvery || a.unkept && age >= keepChanged {
		a.keep(now)
	}
}
