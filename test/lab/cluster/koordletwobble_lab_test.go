// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// wobbles: while a program's use goes up and down by less than what is news, the node reports when an interval is over, three times in a row. Where the
// machine has other work, a report may come before, for what that has moved.
func (n *governed) wobbles(t *testing.T) {
	since := time.Now()
	n.start(t)
	n.patch(t, map[string]any{"hostApplications": []any{map[string]any{"name": "wobbling", "qos": "LS", "priority": "koord-prod", "cgroupPath": map[string]any{"relativePath": n.h.Cgroup + "/app"}}}})
	const app = `koordlet_host_application_resource_usage{host_application_name="wobbling",node="node0",priority_class="koord-prod",qos="LS",resource="cpu"}`
	n.sees(t, `koordlet_host_application_resource_usage\{host_application_name="wobbling".*resource="cpu"\} .*`)
	file, form := "cpu.cfs_quota_us", "%d"
	if n.tree.V2() {
		file, form = "cpu.max", "%d 100000"
	}
	least, most := math.Inf(1), 0.0
	has := 0
	var list []call
	eventually(t, 5*time.Minute, func() error {
		quota := 20000
		if time.Since(since)/(10*time.Second)%2 == 1 {
			quota = 5000
		}
		if quota != has { // a write refills what the quota gives
			if err := cgroups.Write(n.app, file, fmt.Sprintf(form, quota)); err != nil {
				return err
			}
			has = quota
		}
		uses := n.figure(t, app)
		least, most = min(least, uses), max(most, uses)
		list = slices.DeleteFunc(n.reported(t), func(c call) bool { return c.At.Before(since) })
		row := 0
		for i := 1; i < len(list) && row < 3; i++ {
			if row++; list[i].At.Sub(list[i-1].At) < beat {
				row = 0
			}
		}
		if row < 3 {
			return fmt.Errorf("%d reports, no three of them in a row because an interval was over", len(list))
		}
		return nil
	})
	early := n.paced(t, list)
	t.Logf("%d reports in %s, %d of them with news, while a program used %.3f to %.3f CPUs", len(list), time.Since(since).Round(time.Second), early, least, most)
	if most-least < 0.1 {
		t.Errorf("the program used %.3f to %.3f CPUs: it was to go up and down by 0.15", least, most)
	}
}

// paced fails where two of these reports are closer than koordlet looks, or one whose interval is not over has no news, and counts those that have some.
func (n *governed) paced(t *testing.T, list []call) (early int) {
	t.Helper()
	for i := 1; i < len(list); i++ {
		last, c := &list[i-1], &list[i]
		// What is sent a little late makes the next interval shorter. A new life begins with a report.
		if slices.ContainsFunc(n.births, func(at time.Time) bool { return last.At.Before(at) && c.At.After(at) }) {
			continue
		}
		gap := c.At.Sub(last.At)
		if gap < 7*time.Second {
			t.Errorf("two reports within %s", gap)
		}
		if gap < beat {
			early++
			if !moved(t, last.status(t), c.status(t)) {
				t.Errorf("a report %s after the last one, and nothing has changed:\n%.600s\n%.600s", gap, last.Request, c.Request)
			}
		}
	}
	return early
}
