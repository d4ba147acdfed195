// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Of our mounts all have to be there, files and directories; what is only observed or a hook server's own is not looked for.
func TestLostSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lib, lock := dir+"/libvgpu.so", dir+"/lock"
	put(t, lib, "")
	put(t, lock+"/mark", "")
	mount := func(key, value string) plan.Setting {
		return plan.Setting{Knob: plan.Mount, Key: key, Value: plan.Text(value)}
	}
	observed, foreign := mount("/a", dir+"/none rbind"), mount("/b", dir+"/none rbind")
	observed.Observe, foreign.Hook = true, "server"
	for name, c := range map[string]struct {
		pl   plan.Plan
		want string
	}{
		"nothing":      {nil, ""},
		"both":         {plan.Plan{mount("/l", lib+" rbind,ro"), mount("/d", lock+" rbind,rw")}, ""},
		"no library":   {plan.Plan{mount("/l", lib+"x rbind,ro"), mount("/d", lock+" rbind,rw")}, lib + "x"},
		"no directory": {plan.Plan{mount("/l", lib+" rbind,ro"), mount("/d", lock+"x rbind,rw")}, lock + "x"},
		"observed":     {plan.Plan{observed}, ""},
		"a server's":   {plan.Plan{foreign}, ""},
	} {
		v := &node.View{Kernel: node.Kernel{HAMiLib: lib}}
		if got := lostSource(c.pl); got != c.want {
			t.Errorf("%s: got %q", name, got)
		}
		now, gone := (&Live{}).present(v, c.pl)
		if (now == v) != (c.want == "") || len(gone) > 0 != (c.want != "") || v.Kernel.HAMiLib != lib || now != v && now.Kernel.HAMiLib != "" {
			t.Errorf("%s: View with %q, told %v", name, now.Kernel.HAMiLib, gone)
		}
	}
}
