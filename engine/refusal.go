// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
)

// refusal is an error that is meant for the runtime: the pod or the node has chosen fail-closed (D8).
type refusal struct{ reasons []string }

// Error says what is missing and who asked for it.
func (r *refusal) Error() string {
	return "koord-rt: required guarantee is not in force: " + strings.Join(r.reasons, "; ")
}

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// mustHold reports whether the container may not start without the feature.
func mustHold(v *node.View, p *workload.Pod, f protocol.Feature) bool {
	return v.FailClosed.Has(f) || p.Ask.Required.Has(f)
}

// unavailable refuses a pod that requires a feature which this node does not have at all. A degraded feature is in
// force as well as it can be here.
func unavailable(states map[protocol.Feature]node.FeatureState, p *workload.Pod) error {
	if p.Ask.Required.Empty() {
		return nil
	}
	var r refusal
	for _, f := range p.Ask.Required.List() {
		switch s, ok := states[f]; {
		case !ok, s.State == "active", s.State == "degraded":
		default:
			r.reasons = append(r.reasons, fmt.Sprintf("%s is %s here (%s)", f, s.State, s.Detail))
		}
	}
	if len(r.reasons) == 0 {
		return nil
	}
	return &r
}
