// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package draft is the desk on which the plan of one target is written: it knows which features may plan for a pod on
// this node, drops what may not be set, and holds the formulas that the container and the pod level share.
//
// Inputs are a node.View and a workload.Pod, output is a plan.Plan with its problems. Everything is a pure function of
// its arguments. It imports model, api/protocol, api/strategy and the standard library only; never os, net, log, time's
// clock or fmt.
package draft

import (
	"path"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// specKnobs are fields of the runtime's spec or entries of resctrl: no kernel file at container level says whether they
// work. OOM scores exist everywhere.
var specKnobs = plan.KnobSet(plan.Env, plan.Device, plan.CDIDevice, plan.Mount, plan.OOMScoreAdj, plan.RDTClass, plan.RDTSchemata, plan.RDTMonGroup)

// Draft collects the settings of one target.
type Draft struct {
	View   *node.View
	Pod    *workload.Pod
	Target plan.Target
	// Period is that of the target's quota, in which the kubelet tells it (cpuCFSQuotaPeriod); absent, and what no kernel takes, is CFSPeriod.
	Period unit.Opt

	// Plan and Problems are the result.
	Plan     plan.Plan
	Problems []protocol.Problem

	active, planned protocol.FeatureSet
}

// New opens the draft of a target.
func New(v *node.View, p *workload.Pod, t plan.Target) Draft {
	active, planned := Features(v, p)
	return Draft{View: v, Pod: p, Target: t, active: active, planned: planned}
}

// Features returns the features that may write for the pod and those that may at least plan. Both are empty for a pod
// that is left alone: opted out, in an opted-out namespace, or of a foreign runtime handler (D14).
func Features(v *node.View, p *workload.Pod) (active, planned protocol.FeatureSet) {
	if matches(v.OptOutNamespaces, p.Namespace) || matches(v.ForeignHandlers, p.RuntimeHandler) {
		return 0, 0
	}
	for f := range protocol.Feature(protocol.NumFeatures) {
		if p.Ask.OptOut.Has(f) || v.Modes[f] == node.Off {
			continue
		}
		planned = planned.With(f)
		if v.Modes[f] == node.Active {
			active = active.With(f)
		}
	}
	return active, planned
}

// matches reports whether a name fits one of the patterns; configuration has refused malformed ones.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern != "" && strings.IndexByte(`*?[\`, pattern[0]) < 0 && (name == "" || name[0] != pattern[0]) {
			return false // most begin with another letter: this is asked at each decision
		}
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Empty reports that no feature may plan.
func (d *Draft) Empty() bool { return d.planned.Empty() }

// Plans reports whether the feature may plan for this pod.
func (d *Draft) Plans(f protocol.Feature) bool { return d.planned.Has(f) }

// Active are the features that write, Planned those that plan.
func (d *Draft) Active() protocol.FeatureSet  { return d.active }
func (d *Draft) Planned() protocol.FeatureSet { return d.planned }

// Writes reports whether the feature's settings are written and not merely observed.
func (d *Draft) Writes(f protocol.Feature) bool { return d.active.Has(f) }

// Takes reports whether Set would keep a setting: callers ask before they spend time on a reason.
func (d *Draft) Takes(f protocol.Feature, k plan.Knob) bool {
	return d.planned.Has(f) && !d.View.Ceded.Has(k) && (specKnobs.Has(k) || d.View.Kernel.Has(k))
}

// Set adds a setting unless the feature may not plan, the knob is ceded or the kernel lacks it.
func (d *Draft) Set(f protocol.Feature, k plan.Knob, val plan.Value, reason string) {
	d.SetKey(f, k, "", val, reason)
}

// SetKey is Set for a keyed knob.
func (d *Draft) SetKey(f protocol.Feature, k plan.Knob, key string, val plan.Value, reason string) {
	if !d.Takes(f, k) {
		return
	}
	if d.Plan == nil {
		d.Plan = make(plan.Plan, 0, d.few())
	}
	d.Plan = append(d.Plan, plan.Setting{
		Target: d.Target, Knob: k, Key: key, Value: val, Owner: f, Reason: reason, Observe: !d.active.Has(f),
	})
}

// few is about how many settings there will be: a handler waits while room is made for more.
func (d *Draft) few() int {
	if qos := d.Pod.Ask.QoS; (qos == protocol.QoSLS || qos == protocol.QoSNone) && !d.View.Kernel.Has(plan.MemoryHigh) {
		return 2
	}
	return 8
}

// Problem records input that could not be used.
func (d *Draft) Problem(key, reason string) {
	d.Problems = append(d.Problems, protocol.Problem{Key: key, Reason: reason})
}
