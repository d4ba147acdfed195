// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feature

import (
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
)

// byCRI: the way to the runtime is the kubelet's request, not NRI.
func (r *report) byCRI() bool { return r.v.Runtime.Name != "" && r.v.Runtime.NRI == "" }

// carried reports whether a CreateContainer request of CRI has a place for a knob of a container that this runtime
// heeds; shares, quota, memory limit and cpuset always have one.
func (r *report) carried(k plan.Knob) bool {
	return k == plan.OOMScoreAdj && r.v.Runtime.Fields.OOMScoreAdj || r.v.InUnified(k)
}

// late degrades a feature by those of its knobs that reach a container only after its start, because no request carries
// them: there is no moment between creation and first instruction over CRI.
func (r *report) late(knobs ...plan.Knob) {
	if !r.byCRI() {
		return
	}
	var names []string
	for _, k := range knobs {
		if r.v.Kernel.Has(k) && !r.v.Ceded.Has(k) && !r.carried(k) {
			names = append(names, k.String())
		}
	}
	if len(names) > 0 {
		r.limited = append(r.limited, "after start: a CRI request to "+r.runtime()+" cannot carry "+strings.Join(names, ", "))
	}
}
