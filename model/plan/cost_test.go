// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import "testing"

func TestCostLines(t *testing.T) {
	t.Parallel()
	const (
		auto = "enable=1 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00"
		user = "enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=5000 min=50.00 max=150.00"
	)
	for line, want := range map[string]string{auto: "enable=1 ctrl=auto", user: user, CostOff(IOCostQoS): "enable=0 ctrl=auto", CostOff(IOCostModel): "ctrl=auto"} {
		if got := CostWords(line); got != want || !CostHeld(got, line) {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
	for _, tc := range []struct {
		value, line string
		held        bool
	}{
		{"enable=1 ctrl=user rpct=95.00", user, true},
		{"enable=1 ctrl=user rpct=90.00", user, false},
		{"enable=1 ctrl=user rpct=95.00", auto, false},
		{"enable=1 ctrl=auto rlat=7", auto, true}, // a figure of the kernel's own, which moves with the disk
		{"enable=0 ctrl=auto", auto, false},
		{"ctrl=user", "", false},
		{"nonsense", user, false},
	} {
		if got := CostHeld(tc.value, tc.line); got != tc.held {
			t.Errorf("%q in %q: %v", tc.value, tc.line, got)
		}
	}
}
