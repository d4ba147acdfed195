// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// WithCNI adds a pod network to the options of a host of containerd 2.x: a pair of
// interfaces per pod, a route to it, no bridge and no packet filter rule. It goes with its pods.
func WithCNI(ctx context.Context, cache *parts.Cache, o host.Options) (host.Options, error) {
	bin, err := cache.Get(ctx, parts.CNI)
	if err != nil {
		return o, err
	}
	dropIns := map[string]string{}
	for name, text := range o.DropIns {
		dropIns[name] = text
	}
	// Below the host's folder the namespaces go with it, even when it was killed; /run/netns would keep them.
	dropIns["cni.toml"] = fmt.Sprintf("version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nnetns_mounts_under_state_dir = true\n"+
		"[plugins.\"io.containerd.cri.v1.runtime\".cni]\nbin_dirs = [%q]\n", bin)
	before := o.PreStart
	o.DropIns = dropIns
	o.PreStart = func(p host.Paths) error {
		if err := WriteCNI(filepath.Join(p.Dir, "cni"), p.Dir); err != nil {
			return err
		}
		if before != nil {
			return before(p)
		}
		return nil
	}
	return o, nil
}

// WriteCNI writes the network's configuration into confDir; its state is kept below stateDir,
// whose name chooses a subnet of 10.200.0.0/13, so that labs side by side differ.
func WriteCNI(confDir, stateDir string) error {
	h := fnv.New32a()
	h.Write([]byte(stateDir)) // never fails
	n := h.Sum32() % 2048
	data, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "lab",
		"plugins": []any{map[string]any{
			"type": "ptp", "ipMasq": false,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": filepath.Join(stateDir, "cni-state"),
				"ranges": []any{[]any{map[string]any{"subnet": fmt.Sprintf("10.%d.%d.0/24", 200+n/256, n%256)}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	})
	if err != nil {
		return fmt.Errorf("encode pod network: %w", err)
	}
	if err := os.WriteFile(filepath.Join(confDir, "10-lab.conflist"), data, 0o644); err != nil {
		return fmt.Errorf("write pod network: %w", err)
	}
	return nil
}
