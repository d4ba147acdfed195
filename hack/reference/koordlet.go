// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/config"
)

func koordletPage(root string) (string, error) {
	defaults, err := yaml.Marshal(config.DefaultKoordlet())
	if err != nil {
		return "", fmt.Errorf("print defaults: %w", err)
	}
	body, err := keys(filepath.Join(root, "api", "config"), "Koordlet", sharedSections...)
	if err != nil {
		return "", err
	}
	return "One YAML document in /etc/koord-rt/koordlet.yaml, or where `koordlet --config` says; the node strategy may stand in the same file. What it\n" +
		"shares with koord-nri is described [there](config.md); [how to use it](../user/koordlet.md).\n\n```yaml\napiVersion: " +
		config.APIVersion + "\nkind: " + config.KindKoordlet + "\n```\n\n" + body + upstreamWays() + "\n## Defaults\n\n```yaml\n" + string(defaults) + "```\n", nil
}

// upstreamWays are the flags and feature gates of upstream's koordlet.
func upstreamWays() string {
	var b strings.Builder
	b.WriteString("\n## Flags\n\nBeside `--config`, `--check-config` and `--version` the flags of upstream's koordlet are taken, so that the arguments of\n" +
		"its DaemonSet can be kept. Its mounts cannot: `/run/koord-rt`, `/var/lib/koord-rt`, `/etc/koord-rt`, `/run/containerd` and `/sys/fs/cgroup` have to be the host's, at these paths and writable,\n" +
		"with `-cgroup-root-dir=/sys/fs/cgroup/`. A flag that is given wins over the file. One that has no effect is named in the log at the start; one that is not known ends the program.\n\n")
	rows := make([][]string, 0, 128)
	for _, f := range config.KoordletFlags() {
		rows = append(rows, []string{"`--" + f.Name + "`", f.Help})
	}
	b.WriteString(table([]string{"flag", "meaning here"}, rows))
	b.WriteString("\n### Feature gates\n\n`--feature-gates=Name=true,Other=false`. Gates that are off by default there are on here, but those of evictions: what they guard\n" +
		"does nothing before the strategy or a pod asks for it.\n\n")
	rows = rows[:0]
	for _, g := range config.KoordletGates() {
		rows = append(rows, []string{"`" + g.Name + "`", g.Help})
	}
	b.WriteString(table([]string{"gate", "meaning here"}, rows))
	return b.String()
}
