// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

// ProxyFlag is one flag of the proxy's command line and the setting that it overrides. The names are upstream's, but for
// the image endpoint's, which upstream has not.
type ProxyFlag struct {
	// Name is without dashes.
	Name string
	// Help is one line.
	Help string
	// Value points at the setting; it holds the default.
	Value *string
}

// Flags lists the flags over the settings of c. A flag that is given wins over the file, so parse the command line once
// for the file's name, load the file, then set the flags that were given.
func (c *Proxy) Flags() []ProxyFlag {
	return []ProxyFlag{
		{"koord-runtimeproxy-endpoint", "socket that the kubelet connects to", &c.Endpoint},
		{"remote-runtime-service-endpoint", "socket of the runtime behind the proxy", &c.RuntimeEndpoint},
		{"remote-image-service-endpoint", "socket of the image service where it is another one", &c.ImageEndpoint},
		{"backend-runtime-mode", "protocol of the runtime: Containerd (CRI) or Docker", (*string)(&c.BackendMode)},
		{"runtime-hook-server-key", "label of pods that are hook servers themselves and are sent to none", &c.Hooks.ServerKey},
		{"runtime-hook-server-val", "value of that label", &c.Hooks.ServerValue},
	}
}
