// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
)

// CPUState is the checkpoint of the CPU manager of a node's kubelet.
func (c *Cluster) CPUState(node string) string {
	return filepath.Join(c.kubeletRoot(node), "cpu_manager_state")
}

// MemoryState is the same of the memory manager.
func (c *Cluster) MemoryState(node string) string {
	return filepath.Join(c.kubeletRoot(node), "memory_manager_state")
}

func (c *Cluster) kubeletRoot(node string) string { return c.file("kubelet-" + node) }

// Reconfigure starts the kubelet anew with these fields of KubeletConfiguration over those that it had; nil takes one away. The CPU manager and the
// memory manager refuse to start with what they have kept under another policy, so that goes:
// https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/, https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/.
func (k *Kubelet) Reconfigure(ctx context.Context, fields map[string]any) error {
	if err := k.End(syscall.SIGTERM); err != nil {
		return err
	}
	for _, state := range []string{k.cluster.CPUState(k.Node), k.cluster.MemoryState(k.Node)} {
		if err := os.Remove(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the state of a kubelet's manager: %w", err)
		}
	}
	config := map[string]any{}
	maps.Copy(config, k.options.Config)
	maps.Copy(config, fields)
	k.options.Config = config
	if err := k.writeConfig(); err != nil {
		return err
	}
	return k.Restart(ctx)
}

// writeConfig writes KubeletConfiguration v1beta1:
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/.
func (k *Kubelet) writeConfig() error {
	conf := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": k.IP, "port": k.Port, "readOnlyPort": 0, "healthzPort": 0,
		"tlsCertFile":       k.cluster.file("kubelet-" + k.Node + ".crt"),
		"tlsPrivateKeyFile": k.cluster.file("kubelet-" + k.Node + ".key"),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"x509":      map[string]any{"clientCAFile": k.cluster.CA},
			"webhook":   map[string]any{"enabled": true},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"containerRuntimeEndpoint": unixURL(k.options.Runtime),
		"imageServiceEndpoint":     unixURL(k.options.Images),
		"podLogsDir":               k.Logs,
		"volumePluginDir":          filepath.Join(k.Root, "volumeplugins"),
		"resolvConf":               "", // pods without cluster DNS take the node's own
		"featureGates":             k.options.FeatureGates,
		// Control groups: version 1 is served, and nothing outside our root is touched.
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": true,
		"cgroupRoot": "/" + k.CgroupRoot, "enforceNodeAllocatable": []string{"pods"},
		"failSwapOn": false, "oomScoreAdj": ownOOMScore(), "makeIPTablesUtilChains": false,
		// A lab machine may be nearly full; no pod may go for that.
		"evictionHard": map[string]string{
			"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
			"imagefs.available": "1%", "imagefs.inodesFree": "1%",
		},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		// Quick enough for tests.
		"syncFrequency": "2s", "nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "2s",
		"volumeStatsAggPeriod": "1m", "shutdownGracePeriod": "0s",
	}
	maps.Copy(conf, k.options.Config)
	data, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return fmt.Errorf("encode kubelet configuration: %w", err)
	}
	if err := os.WriteFile(k.config, data, 0o600); err != nil {
		return fmt.Errorf("write kubelet configuration: %w", err)
	}
	return nil
}
