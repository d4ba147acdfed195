// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

// APIVersion and Kind identify the configuration document.
const (
	APIVersion = "koord-rt.dev/v1alpha1"
	KindNRI    = "NRIConfig"
)

// NRI is the configuration of koord-nri. Durations are Go durations ("500ms"), paths are absolute.
type NRI struct {
	Node
	// Socket is the runtime's NRI socket. Default /var/run/nri/nri.sock.
	Socket string `json:"socket"`
	// PluginName is the name under which the plugin registers: letters, digits, dot, underscore and dash, at most 63.
	// Default koord-rt.
	PluginName string `json:"pluginName"`
	// PluginIndex orders plugins of one runtime, two digits, low first. Default "05".
	PluginIndex string `json:"pluginIndex"`
	// Reconnect paces reconnection to the runtime.
	Reconnect Reconnect `json:"reconnect"`
	// RequestTimeout is the limit the runtime grants a plugin per request; a plugin that exceeds it is dropped. It
	// states the runtime's setting (plugin_request_timeout) and does not change it. Range 100ms..60s, default 2s.
	RequestTimeout Duration `json:"requestTimeout"`
	// RealTime lets koord-nri run before all that share a processor by weight (SCHED_RR with the lowest priority), so that no creation waits
	// while it waits for a processor. It gives that back by itself when one of its threads does not sleep for half a second, and does not ask for it on
	// cgroup v2 where the kernel shares out real time by cgroup, or does not show whether it does. koordctl doctor tells which. Default true.
	RealTime bool `json:"realTime"`
}

// Reconnect paces reconnection: the wait starts at Min and doubles up to Max.
type Reconnect struct {
	// Min is the first wait. Range 10ms..Max, default 500ms.
	Min Duration `json:"min"`
	// Max is the longest wait. Range Min..10m, default 30s.
	Max Duration `json:"max"`
}
