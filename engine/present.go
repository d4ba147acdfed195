// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// present holds what a plan takes from the node beside the kernel against what is there now: the runtime fails a container over a CDI
// name that has left the registry since the probe, runc over a mount whose source has gone. It gives the View as it is, or where
// something is missing one to decide by anew, and what to tell of it: policy then gives the device another way, or the limits without
// HAMi-core, none of which a check of single settings could.
func (l *Live) present(v *node.View, pl plan.Plan) (*node.View, []protocol.Problem) {
	if l == nil {
		return v, nil
	}
	device, names := l.lostDevice(pl)
	source := lostSource(pl)
	if device == "" && source == "" {
		return v, nil
	}
	now := *v
	var gone []protocol.Problem
	if device != "" {
		now.Kernel.CDI = names
		gone = append(gone, protocol.Problem{Key: protocol.AnnotationDeviceAllocated, Reason: "the CDI device " + device +
			" has left the registry since the node was probed: GPUs are given as device nodes and NVIDIA_VISIBLE_DEVICES"})
	}
	if source != "" {
		now.Kernel.HAMiLib = ""
		gone = append(gone, protocol.Problem{Key: protocol.LabelGPUIsolationProvider, Reason: source +
			" has gone since the node was probed: HAMi-core is not loaded, limits are not enforced"})
	}
	return &now, gone
}

// lostDevice is a CDI device of the plan that the registry does not have any more, "" for none, and the registry.
func (l *Live) lostDevice(pl plan.Plan) (name string, names map[string]struct{}) {
	if l.CDI == nil {
		return "", nil
	}
	for i := range pl {
		s := &pl[i]
		if s.Knob != plan.CDIDevice || s.Observe {
			continue
		}
		if names == nil {
			if names = l.CDI(); names == nil {
				return "", nil
			}
		}
		if _, ok := names[s.Key]; !ok {
			return s.Key, names
		}
	}
	return "", names
}

// lostSource is a source of our mounts, which are HAMi-core's library and lock directory, that is not there any more; "" for none. What a
// hook server wants mounted is its own: a runtime may make a source that is missing.
func lostSource(pl plan.Plan) string {
	for i := range pl {
		s := &pl[i]
		if s.Knob != plan.Mount || s.Observe || s.Hook != "" {
			continue
		}
		if source, _, _ := strings.Cut(s.Value.String(), " "); !exists(source) {
			return source
		}
	}
	return ""
}

// lost reports what a container does not get because the node has lost it, beside whatever its pod's input is blamed for under the same key.
func (g *Engine) lost(pod *workload.Pod, c *workload.Container, list []protocol.Problem) {
	target := pod.Target()
	target.Name += "/" + c.Name
	g.jobs.add(func(context.Context) {
		for _, pr := range list {
			g.reportBy(pr.Key+": "+pr.Reason, target, pr)
		}
	})
}

// stale has the node probed again: a View names what is not there any more.
func (l *Live) stale() {
	if l.Stale != nil {
		l.Stale()
	}
}
