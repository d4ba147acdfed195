// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
)

// upstreamFlags are the flags of Koordinator 1.8's koord-runtime-proxy with their defaults.
var upstreamFlags = map[string]string{
	"koord-runtimeproxy-endpoint":     "/var/run/koord-runtimeproxy/runtimeproxy.sock",
	"remote-runtime-service-endpoint": "/var/run/containerd/containerd.sock",
	"backend-runtime-mode":            "Containerd",
	"runtime-hook-server-key":         protocol.LabelSkipHookServer,
	"runtime-hook-server-val":         "true",
}

// ownFlags are those that override no setting. Their test reads the program's source.
var ownFlags = [][]string{
	{"config", "", "configuration file; the default, /etc/koord-rt/proxy.yaml, may be absent"},
	{"check-config", "", "check the configuration and the strategy file, and end: 0 when they are good"},
	{"version", "", "print the version and end"},
}

// sharedSections are described with koord-nri's configuration and mean the same here.
var sharedSections = []string{"Host", "OptOut", "Limits", "Metrics", "Log", "Reconnect"}

func proxyPage(root string) (string, error) {
	defaults, err := yaml.Marshal(config.DefaultProxy())
	if err != nil {
		return "", fmt.Errorf("print defaults: %w", err)
	}
	body, err := keys(filepath.Join(root, "api", "config"), "Proxy", sharedSections...)
	if err != nil {
		return "", err
	}
	flags, err := flagTable()
	if err != nil {
		return "", err
	}
	var links []string
	for _, s := range sharedSections {
		links = append(links, "["+s+"](config.md#"+strings.ToLower(s)+")")
	}
	return `How to use it: [proxy](../user/proxy.md).

## Flags

A flag that is given wins over the file. One dash or two, ` + "`--name value` or `--name=value`" + `. There are no others, none of a logging library
either: that is log.level in the file.

` + flags + `
## File

One YAML document in /etc/koord-rt/proxy.yaml, or where ` + "`koord-runtime-proxy --config`" + ` says. Unknown keys, keys given twice and values out
of range are errors. The node strategy may stand in the same file: as a second document of kind NodeSLO, or as a bare spec under the key
strategy. These sections mean the same as for koord-nri: ` + strings.Join(links, ", ") + `. The
defaults that hold here are at the end of this page.

` + "```yaml\napiVersion: " + config.APIVersion + "\nkind: " + config.KindProxy + "\n```\n\n" + body + "\n## Defaults\n\n```yaml\n" + string(defaults) + "```\n", nil
}

func flagTable() (string, error) {
	c := config.DefaultProxy()
	var rows [][]string
	for _, f := range c.Flags() {
		key, err := settingOf(f.Name)
		if err != nil {
			return "", err
		}
		was, known := upstreamFlags[f.Name]
		same := "not there"
		switch {
		case known && was == *f.Value:
			same = "same name, same default"
		case known:
			same = "same name, default " + code(was)
		}
		rows = append(rows, []string{code("--" + f.Name), code(*f.Value), code(key), f.Help, same})
	}
	for _, f := range ownFlags {
		rows = append(rows, []string{code("--" + f[0]), code(f[1]), code(""), f[2], "not there"})
	}
	return table([]string{"flag", "default", "key in the file", "meaning", "in Koordinator 1.8"}, rows), nil
}

// settingOf is the key that a flag overrides, found by setting it.
func settingOf(flag string) (string, error) {
	const mark = "\x01here"
	c := config.DefaultProxy()
	for _, f := range c.Flags() {
		if f.Name == flag {
			*f.Value = mark
		}
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("print settings: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return "", fmt.Errorf("read settings: %w", err)
	}
	path := find(tree, mark)
	if path == nil {
		return "", fmt.Errorf("flag %s sets nothing", flag)
	}
	return strings.Join(path, "."), nil
}

// find is the path of the value in a tree of maps, nil when it is not there.
func find(tree map[string]any, value string) []string {
	for key, v := range tree {
		if v == value {
			return []string{key}
		}
		if inner, ok := v.(map[string]any); ok {
			if path := find(inner, value); path != nil {
				return slices.Insert(path, 0, key)
			}
		}
	}
	return nil
}
