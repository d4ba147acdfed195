// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1_test

import (
	"testing"

	v1 "github.com/koord-rt/koord-rt/kernel/cgroup/v1"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// A disk's line of an Anolis kernel is written whole and read back by the disk's number; what is no line is refused.
func TestCostLines(t *testing.T) {
	t.Parallel()
	var h v1.Hierarchy
	for k, file := range map[plan.Knob]string{plan.IOCostQoS: "blkio.cost.qos", plan.IOCostModel: "blkio.cost.model"} {
		if v1.Controller(k) != "blkio" || h.File(k) != file {
			t.Errorf("%s is %s of %s", k, h.File(k), v1.Controller(k))
		}
		s := plan.Setting{Knob: k, Key: "8:0", Value: plan.Text("enable=1 ctrl=user")}
		text, err := h.Render(s, unit.Quadratic, nil)
		if err != nil || text != "8:0 enable=1 ctrl=user" {
			t.Errorf("%s: %q, %v", k, text, err)
		}
		if v, err := h.Parse(k, "8:0", []byte("7:0 enable=0\n"+text+"\n"), unit.Quadratic); err != nil || v != s.Value {
			t.Errorf("%s reads %q, %v", k, v, err)
		}
		for _, bad := range []plan.Setting{{Knob: k, Key: "sda", Value: s.Value}, {Knob: k, Key: "8:0"}, {Knob: k, Key: "8:0", Value: plan.Text("")}} {
			if text, err := h.Render(bad, unit.Quadratic, nil); err == nil {
				t.Errorf("%+v becomes %q", bad, text)
			}
		}
	}
}
