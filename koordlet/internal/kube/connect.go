// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

// ErrNoCluster means that nothing says where an API server is: the agent works without one.
var ErrNoCluster = errors.New("neither a kubeconfig nor a service account")

// ServiceAccountDir is where the kubelet puts a pod's token and the cluster's authority.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxKubeconfig bounds a kubeconfig file.
const maxKubeconfig = 1 << 20

// FromServiceAccount is the configuration of a program in a pod. env is os.Getenv; dir is [ServiceAccountDir]. The files
// are rotated by the kubelet and read again when they change.
func FromServiceAccount(dir string, env func(string) string) (Config, error) {
	host, port := env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Config{}, ErrNoCluster
	}
	return Config{
		Server: "https://" + net.JoinHostPort(host, port),
		Trust:  trust.Options{CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token")},
	}, nil
}

// kubeconfig is the part of a kubeconfig file that is read. Fields that would change how we authenticate are here to be
// refused.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server     string `yaml:"server"`
	CAFile     string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	SkipVerify bool   `yaml:"insecure-skip-tls-verify"`
	ProxyURL   string `yaml:"proxy-url"`
}

type user struct {
	Token     string    `yaml:"token"`
	TokenFile string    `yaml:"tokenFile"`
	CertFile  string    `yaml:"client-certificate"`
	CertData  string    `yaml:"client-certificate-data"`
	KeyFile   string    `yaml:"client-key"`
	KeyData   string    `yaml:"client-key-data"`
	Exec      yaml.Node `yaml:"exec"`
	Provider  yaml.Node `yaml:"auth-provider"`
	Username  string    `yaml:"username"`
	As        string    `yaml:"as"`
}

// FromKubeconfig reads the current context of a kubeconfig file. Files it names are relative to its folder and are read
// again when they change. Credential plugins (exec), the old auth providers, passwords and impersonation are refused by
// name: an agent that is root on every node runs no program that a file names.
func FromKubeconfig(path string) (Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Config{}, fmt.Errorf("read kubeconfig: %w", err)
	}
	if info.Size() > maxKubeconfig {
		return Config{}, fmt.Errorf("read kubeconfig %s: more than %d bytes", path, maxKubeconfig)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read kubeconfig: %w", err)
	}
	config, err := ParseKubeconfig(data, filepath.Dir(path))
	if err != nil {
		return Config{}, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// ParseKubeconfig reads the text of a kubeconfig; dir is what its relative paths are below.
func ParseKubeconfig(data []byte, dir string) (Config, error) {
	if len(data) > maxKubeconfig {
		return Config{}, fmt.Errorf("parse: more than %d bytes", maxKubeconfig)
	}
	var k kubeconfig
	if err := strategy.Loose(data, &k); err != nil {
		return Config{}, fmt.Errorf("parse: %w", err)
	}
	cl, u, err := k.current()
	if err != nil {
		return Config{}, err
	}
	if err := refuse(cl, u); err != nil {
		return Config{}, err
	}
	file := func(p string) string {
		if p == "" || filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	out := Config{Server: cl.Server, Trust: trust.Options{
		CAFile: file(cl.CAFile), ServerName: cl.ServerName, SkipVerify: cl.SkipVerify,
		TokenFile: file(u.TokenFile), Token: u.Token, CertFile: file(u.CertFile), KeyFile: file(u.KeyFile),
	}}
	// Inline data wins over files, as in kubectl.
	for _, d := range []struct {
		key, text string
		to        *[]byte
		path      *string
	}{
		{"certificate-authority-data", cl.CAData, &out.Trust.CA, &out.Trust.CAFile},
		{"client-certificate-data", u.CertData, &out.Trust.Cert, &out.Trust.CertFile},
		{"client-key-data", u.KeyData, &out.Trust.Key, &out.Trust.KeyFile},
	} {
		if d.text == "" {
			continue
		}
		if *d.to, err = base64.StdEncoding.DecodeString(d.text); err != nil {
			return Config{}, fmt.Errorf("%s: %w", d.key, err)
		}
		*d.path = ""
	}
	return out, nil
}

// current finds cluster and user of the current context.
func (k *kubeconfig) current() (cluster, user, error) {
	for _, c := range k.Contexts {
		if c.Name != k.CurrentContext {
			continue
		}
		cl, haveCluster := cluster{}, false
		for _, x := range k.Clusters {
			if x.Name == c.Context.Cluster {
				cl, haveCluster = x.Cluster, true
			}
		}
		u, haveUser := user{}, c.Context.User == ""
		for _, x := range k.Users {
			if x.Name == c.Context.User {
				u, haveUser = x.User, true
			}
		}
		if !haveCluster || !haveUser {
			return cluster{}, user{}, fmt.Errorf("context %.80q: no cluster %.80q or no user %.80q", c.Name, c.Context.Cluster, c.Context.User)
		}
		return cl, u, nil
	}
	return cluster{}, user{}, fmt.Errorf("no current context %.80q", k.CurrentContext)
}

// refuse names what is not supported.
func refuse(cl cluster, u user) error {
	switch {
	case u.Exec.Kind != 0:
		return errors.New("exec credential plugins are not supported: use a token file or a client certificate")
	case u.Provider.Kind != 0:
		return errors.New("auth-provider is not supported: use a token file or a client certificate")
	case u.Username != "":
		return errors.New("username and password are not supported")
	case u.As != "":
		return errors.New("impersonation is not supported")
	case cl.ProxyURL != "":
		return errors.New("proxy-url is not supported: set HTTPS_PROXY")
	}
	return nil
}
