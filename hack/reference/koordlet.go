// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"path/filepath"

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
		config.APIVersion + "\nkind: " + config.KindKoordlet + "\n```\n\n" + body + "\n## Defaults\n\n```yaml\n" + string(defaults) + "```\n", nil
}
