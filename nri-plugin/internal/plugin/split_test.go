// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/engine/enginetest"
)

// maxMessage is ttrpc's limit of one message.
const maxMessage = 4 << 20

// A list of containers that does not fit into one message comes in several: all of them count, and all are repaired,
// the first as the last.
func TestSynchronizeSplit(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.rt = newRuntime(t, h.socket)
	const pods, perPod, size = 40, 5, 32 << 10
	var dirs []string
	total := 0
	for i := range pods {
		sb := h.sandbox(t, fmt.Sprintf("big%d", i), "LS", nil)
		var ctrs []*api.Container
		for j := range perPod {
			ctr := ctrOf(sb, fmt.Sprintf("c%d", j))
			ctr.State = api.ContainerState_CONTAINER_RUNNING
			ctr.Annotations = map[string]string{"example.com/notes": strings.Repeat("x", size)}
			h.runc(t, ctr, nil)
			dirs, ctrs, total = append(dirs, ctr.Linux.CgroupsPath), append(ctrs, ctr), total+size
		}
		h.rt.add(sb, ctrs...)
	}
	if total < maxMessage*3/2 {
		t.Fatalf("%d bytes may fit into one message", total)
	}
	h.run(t)
	if n := h.engine.Status().Counters["containers"]; n != pods*perPod {
		t.Errorf("%d containers are known, want %d", n, pods*perPod)
	}
	if h.rt.syncs() != 1 {
		t.Errorf("synchronized %d times", h.rt.syncs())
	}
	repaired := 0
	enginetest.Eventually(t, "repair of all", func() bool {
		for repaired < len(dirs) && h.tree.Get(t, dirs[repaired], "cpu.max.burst") == "100000" {
			repaired++
		}
		return repaired == len(dirs)
	})
}
