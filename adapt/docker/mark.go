// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// labelApplied is where protocol.AnnotationApplied lies: cri-dockerd shows labels of this prefix as annotations.
const labelApplied = AnnotationPrefix + protocol.AnnotationApplied

// applied is our mark among the labels, nil without one and for one that cannot be read.
func applied(labels map[string]string) *protocol.Applied {
	text, ok := labels[labelApplied]
	if !ok {
		return nil
	}
	m, err := protocol.ParseApplied(text)
	if err != nil {
		return nil
	}
	return &m
}

// keeps reports whether a mark names the setting: all but what a cgroup v2 file carries, which Docker's API has not.
func keeps(s *plan.Setting) bool { return s.Knob.UnifiedKey() == "" }

// Mark says what the plan changes on a container and what stood there before, nil when nothing changes.
func Mark(p plan.Plan, c *workload.Container, by mark.By) *protocol.Applied {
	return mark.Of(by, p, &c.Base, keeps)
}

// holds reports whether the request has the value already. A list that is to be cleared is never held: the API has no
// word for that.
func holds(base *workload.Resources, s *plan.Setting) bool {
	return s.Value.String() != "" && mark.Holds(base, s)
}
