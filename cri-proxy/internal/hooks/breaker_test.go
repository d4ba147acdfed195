// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	const pause = time.Minute
	start := time.Unix(0, 0)
	b := &breaker{}
	for i, step := range []struct {
		at   time.Duration
		do   string
		want bool
	}{
		{0, "allow", true}, {1, "hung", false}, {1, "hung", false}, {2, "answered", false}, // two in a row are none
		{3, "allow", true}, {3, "hung", false}, {4, "hung", false}, {5, "allow", true}, {5, "allow", true}, {5, "allow", true},
		{6, "hung", true}, {7, "hung", false}, // of three under way together the first one counts
		{8, "allow", false}, {5 + pause, "allow", false},
		{6 + pause, "allow", true}, {6 + pause, "allow", false}, // one tries
		{7 + pause, "hung", true}, {8 + pause, "allow", false}, {6 + 2*pause, "allow", false},
		{7 + 2*pause, "allow", true}, {8 + 2*pause, "cut", false}, {9 + 2*pause, "allow", true}, // a try that came to nothing
		{9 + 2*pause, "answered", true}, {10 + 2*pause, "allow", true}, {10 + 2*pause, "allow", true}, {11 + 2*pause, "answered", false},
	} {
		now, got := start.Add(step.at), false
		switch step.do {
		case "allow":
			got = b.allow(now)
		case "hung":
			got = b.hung(now, pause)
		case "answered":
			got = b.answered()
		case "cut":
			b.cut()
		}
		if got != step.want {
			t.Errorf("step %d, %s at %v: %v", i, step.do, step.at, got)
		}
	}
}
