// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// errNotRecorded: neither the kubelet's value is known nor one that would be as if none was set.
var errNotRecorded = errors.New("kubelet's value was not recorded")

// widest is what restricts least: kubelet's own value where it was recorded, else the kernel's default.
func (a *Applier) widest(h history) (plan.Value, string, error) {
	if h.runtime.Base != "" {
		v, err := valueOf(h.id.Knob, h.runtime.Base)
		return v, "what kubelet asked for", err
	}
	reason := "widest: the runtime's specification keeps ours"
	switch k := h.id.Knob; k {
	case plan.CPUSetCPUs, plan.CPUSetMems:
		if !a.o.FS.Nested(k) {
			if v, ok := a.inherited(h.id); ok {
				return v, occupied, nil
			}
			return plan.Text(""), reason, nil
		}
		t := h.id.Target
		t.Cgroup = parentDir(t.Cgroup)
		v, err := a.o.FS.Read(plan.ID{Target: t, Knob: k})
		return v, "the parent's: the runtime's specification keeps ours", err
	default:
		if v, ok := plan.Neutral(k); ok {
			return v, reason, nil
		}
		return plan.Value{}, "", fmt.Errorf("%s of %s: %w", k, h.id.Target, errNotRecorded)
	}
}

// occupied is why a list cannot be emptied again.
const occupied = "the parent's: a cgroup with processes keeps a list"

// inherited is what an empty list of cgroup v2 would mean, where it cannot be emptied: ENOSPC while there are processes
// (cpuset.c, validate_change). Writing the parent's effective list is the same until that changes.
func (a *Applier) inherited(id plan.ID) (plan.Value, bool) {
	main, err := a.o.FS.Path(id.Target, id.Knob)
	if err != nil {
		return plan.Value{}, false
	}
	dir := path.Dir(main)
	events, err := root.Read(dir + "/cgroup.events")
	if err != nil || !strings.Contains(events, "populated 1") {
		return plan.Value{}, false
	}
	list, err := root.Read(path.Dir(dir) + "/" + path.Base(main) + ".effective")
	return plan.Text(list), err == nil && list != ""
}
