// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package feature states per feature how it works on this node: active, degraded and how, unsupported and why, observe
// or off.
//
// Input is a node.View (kernel and runtime capabilities, modes, limits), output one line per feature. It imports model
// and api/protocol only.
package feature

import (
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// The states of node.FeatureState.
const (
	Active      = "active"
	Degraded    = "degraded"
	Unsupported = "unsupported"
	Observe     = "observe"
	Off         = "off"
)

// States returns one line per feature, in the order of the constants. Observed features tell in the detail what they
// would be when active.
func States(v *node.View) []node.FeatureState {
	out := make([]node.FeatureState, 0, protocol.NumFeatures)
	refused, supported := v.Runtime.Supported()
	for f := range protocol.NumFeatures {
		s := &report{v: v}
		if supported {
			checks[f](s)
		} else {
			s.missing = []string{"the runtime is " + refused}
		}
		line := node.FeatureState{Feature: f.String(), State: s.state(), Detail: s.detail()}
		switch v.Modes[f] {
		case node.Off:
			line.State, line.Detail = Off, "switched off in the configuration"
		case node.Observe:
			line.State, line.Detail = Observe, strings.TrimSuffix("planned and recorded, not written; when active: "+line.State+", "+line.Detail, ", ")
		}
		out = append(out, line)
	}
	return out
}

// checks is the table of what each feature needs.
var checks = [protocol.NumFeatures]func(*report){
	protocol.FeatureBatch:         batch,
	protocol.FeatureCPUSet:        cpuset,
	protocol.FeatureIdentity:      identity,
	protocol.FeatureBurst:         burst,
	protocol.FeatureNormalization: normalization,
	protocol.FeatureMemory:        memory,
	protocol.FeatureLLC:           cache,
	protocol.FeatureBlkIO:         blkio,
	protocol.FeatureOOMScore:      oomScore,
	protocol.FeatureCoreSched:     coreSched,
	protocol.FeatureDevices:       devices,
	protocol.FeatureNetwork:       network,
}

// report collects sentences about one feature.
type report struct {
	v *node.View
	// off, missing and limited raise the state in this order; notes do not.
	off, missing, limited, notes []string
}

func (r *report) state() string {
	switch {
	case len(r.off) > 0:
		return Off
	case len(r.missing) > 0:
		return Unsupported
	case len(r.limited) > 0:
		return Degraded
	default:
		return Active
	}
}

// detail joins the sentences, the weightiest first.
func (r *report) detail() string {
	var all []string
	for _, part := range [...][]string{r.off, r.missing, r.limited, r.notes} {
		all = append(all, part...)
	}
	return strings.Join(all, "; ")
}

// need requires a knob: missing it, or having it ceded, makes the feature unsupported.
func (r *report) need(k plan.Knob) bool { return r.have(k, &r.missing) }

// want asks for a knob: without it the feature is degraded.
func (r *report) want(k plan.Knob) bool { return r.have(k, &r.limited) }

func (r *report) have(k plan.Knob, to *[]string) bool {
	s := &r.v.Kernel.Knobs[k]
	switch {
	case r.v.Ceded.Has(k):
		*to = append(*to, k.String()+" is ceded to another plugin")
	case !s.OK && s.Why != "":
		*to = append(*to, "no "+k.String()+": "+s.Why)
	case !s.OK:
		*to = append(*to, "no "+k.String()+" on this kernel ("+r.v.Kernel.Release+")")
	default:
		if s.Degraded != "" {
			r.limited = append(r.limited, k.String()+": "+s.Degraded)
		}
		return true
	}
	return false
}

// runtime names the container runtime.
func (r *report) runtime() string {
	name := strings.TrimSpace(r.v.Runtime.Name + " " + r.v.Runtime.Version)
	if name == "" {
		name = "the container runtime"
	}
	if r.v.Runtime.NRI != "" {
		name += " (NRI " + r.v.Runtime.NRI + ")"
	}
	return name
}
