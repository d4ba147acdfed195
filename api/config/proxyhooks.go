// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

// HookMerge says whose value holds where a hook server's answer and our own plan set the same knob.
type HookMerge string

// The ways to merge. Both keep exactly one of the two values.
const (
	// HookYields: ours holds, the hook server's applies where we set nothing.
	HookYields HookMerge = "yields"
	// HookReplaces: the hook server's holds, ours applies where it sets nothing.
	HookReplaces HookMerge = "replaces"
)

// ProxyHooks is about external hook servers (Koordinator's RuntimeHookService).
type ProxyHooks struct {
	// Dir holds one JSON file per hook server, as koordlet writes it: remote-endpoint, failure-policy, runtime-hooks.
	// Empty calls no hook server. Default /etc/runtime/hookserver.d.
	Dir string `json:"dir"`
	// ServerKey and ServerValue mark the pods of hook servers themselves: a pod with this label (or annotation) is never
	// sent to a hook server. Flags --runtime-hook-server-key and --runtime-hook-server-val. Default
	// runtimeproxy.koordinator.sh/skip-hookserver and true.
	ServerKey   string `json:"serverKey"`
	ServerValue string `json:"serverValue"`
	// Merge says whose value holds where both set one knob: yields (ours) or replaces (the hook server's). Default yields.
	Merge HookMerge `json:"merge"`
	// Servers overrides Merge for a hook server, by the name of its file without .json. Default none.
	Servers map[string]HookMerge `json:"servers"`
	// Timeout bounds one call of a hook server. Range 10ms..2m; 0s, the default, is 1s. A server gets at most a quarter of
	// what is left of the CRI call, so that the call can still go on; one with policy Fail whose time is given here may
	// have all of it.
	Timeout Duration `json:"timeout"`
	// AllowRemote accepts hook servers on other machines. Requests carry the variables of every container and are not
	// encrypted, so only unix sockets and loopback addresses are accepted unless this is set. Default false.
	AllowRemote bool `json:"allowRemote"`
}

// MergeOf is how the answers of one hook server are merged.
func (h *ProxyHooks) MergeOf(server string) HookMerge {
	if m, ok := h.Servers[server]; ok {
		return m
	}
	return h.Merge
}
