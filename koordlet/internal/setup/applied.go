// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
)

// applied remembers what has been said of the NodeSLO, so that each change has one line in the log: when it is in force, or when it ought
// to be and is not.
type applied struct {
	uid        string
	generation int64
	problem    string
	// spec is what was in force last.
	spec *strategy.Spec
}

// news is the line for what is in force now, ok when there is something new. attributes are slog's: the generation, and the fields that
// differ from what was in force before (M-1 of the documents).
func (a *applied) news(f *report.InForce, spec *strategy.Spec) (message string, attributes []any, ok bool) {
	problem := ""
	switch {
	case f.Pending:
		problem = f.Problem
	case f.Partly:
		problem = "some values" // which ones may change with every look
	}
	if a.uid == f.UID && a.generation == f.Generation && a.problem == problem {
		return "", nil, false
	}
	a.uid, a.generation, a.problem = f.UID, f.Generation, problem
	attributes = []any{"generation", f.Generation}
	if f.Pending {
		return "NodeSLO is not in force", append(attributes, "reason", problem), true
	}
	if f.Partly {
		return "NodeSLO is in force but for some values", append(attributes, "reason", f.Problem), true
	}
	changed := strategy.Changed(a.spec, spec)
	a.spec = spec
	if len(changed) == 0 {
		changed = []string{"nothing that this node knows"}
	}
	return "NodeSLO is in force", append(attributes, "changed", strings.Join(changed, ", ")), true
}
