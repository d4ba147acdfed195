// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
)

// Applied is what the wanted plan lets the applied annotation say, by "NAMESPACE/POD/CONTAINER": knob (with its key) ->
// "VALUE OWNER", as protocol.Applied.Set. Containers without a setting are missing. Settings of other levels are not in it, nor a period, which
// is planned for systemd and is what the kubelet has asked for.
func (s *Scenario) Applied(version string) map[string]map[string]string {
	out := map[string]map[string]string{}
	for line := range strings.Lines(s.WantPlan[version]) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "container ")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(rest, " ")
		knob, rest, _ := strings.Cut(rest, " = ")
		if knob == plan.CPUPeriod.String() {
			continue
		}
		value, rest, _ := strings.Cut(rest, " (")
		owner, _, _ := strings.Cut(rest, ":")
		if strings.HasPrefix(knob, "env[") {
			value = "set"
		}
		if out[name] == nil {
			out[name] = map[string]string{}
		}
		out[name][knob] = value + " " + owner
	}
	return out
}
