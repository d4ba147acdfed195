// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

const gib = unit.Bytes(1 << 30)

// TestBooked has the numbers of A8: 24 of 30 GiB requested are 80 %, 20 of 30 are not.
func TestBooked(t *testing.T) {
	t.Parallel()
	pod := func(name string, qos protocol.QoS, request unit.Bytes) capacity.Pod {
		return capacity.Pod{Name: name, QoS: qos, Class: qos.DefaultPriorityClass(), Request: capacity.Amounts{CPU: 9000, Memory: request}}
	}
	uses := func(name string, memory unit.Bytes) capacity.Usage {
		return capacity.Usage{Name: name, Used: capacity.Amounts{CPU: 9000, Memory: memory}}
	}
	for name, tc := range map[string]struct {
		pods []capacity.Pod
		used []capacity.Usage
		mark unit.Percent
		want capacity.Booked
		full bool
	}{
		"24 of 30":          {[]capacity.Pod{pod("a", protocol.QoSBE, 30*gib)}, []capacity.Usage{uses("a", 24*gib)}, 80, capacity.Booked{Used: 24 * gib, Requested: 30 * gib}, true},
		"a byte less":       {[]capacity.Pod{pod("a", protocol.QoSBE, 30*gib)}, []capacity.Usage{uses("a", 24*gib-1)}, 80, capacity.Booked{Used: 24*gib - 1, Requested: 30 * gib}, false},
		"20 of 30":          {[]capacity.Pod{pod("a", protocol.QoSBE, 30*gib)}, []capacity.Usage{uses("a", 20*gib)}, 80, capacity.Booked{Used: 20 * gib, Requested: 30 * gib}, false},
		"two pods together": {[]capacity.Pod{pod("a", protocol.QoSBE, 20*gib), pod("b", protocol.QoSBE, 10*gib)}, []capacity.Usage{uses("a", 16*gib), uses("b", 8*gib)}, 80, capacity.Booked{Used: 24 * gib, Requested: 30 * gib}, true},
		"others do not count": {[]capacity.Pod{pod("a", protocol.QoSBE, 30*gib), pod("b", protocol.QoSLS, gib)},
			[]capacity.Usage{uses("a", 20*gib), uses("b", 64*gib)}, 80, capacity.Booked{Used: 20 * gib, Requested: 30 * gib}, false},
		"one that has just come": {[]capacity.Pod{pod("a", protocol.QoSBE, 30*gib), pod("b", protocol.QoSBE, 30*gib)},
			[]capacity.Usage{uses("a", 24*gib)}, 80, capacity.Booked{Used: 24 * gib, Requested: 30 * gib}, true},
		"one that is gone":  {[]capacity.Pod{pod("a", protocol.QoSBE, 30*gib)}, []capacity.Usage{uses("a", 20*gib), uses("b", 64*gib)}, 80, capacity.Booked{Used: 20 * gib, Requested: 30 * gib}, false},
		"nothing requested": {[]capacity.Pod{pod("a", protocol.QoSBE, 0)}, []capacity.Usage{uses("a", 64*gib)}, 80, capacity.Booked{Used: 64 * gib}, false},
		"nobody":            {nil, nil, 0, capacity.Booked{}, false},
		"any use at all":    {[]capacity.Pod{pod("a", protocol.QoSBE, gib)}, []capacity.Usage{uses("a", 0)}, 0, capacity.Booked{Requested: gib}, true},
	} {
		got := capacity.BookedOf(tc.pods, &capacity.Report{Pods: tc.used})
		if got != tc.want || got.Full(tc.mark) != tc.full {
			t.Errorf("%s: %+v, full %v; want %+v, %v", name, got, got.Full(tc.mark), tc.want, tc.full)
		}
	}
}
