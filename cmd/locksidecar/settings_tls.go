package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// RedisTLSConfig returns what makes the TLS configuration of a new connection,
// or nil if the connection is to be in plain text. The files are read at each
// call, so that rotated certificates are used without a restart. The function
// never returns a nil configuration without an error. The configuration has
// no server name unless one is set: whoever dials derives it from the address,
// as [tls.Dialer] does.
func (s *Settings) RedisTLSConfig() func() (*tls.Config, error) {
	if !s.RedisTLS {
		return nil
	}
	ca, cert, key, serverName := s.RedisTLSCAFile, s.RedisTLSCertFile, s.RedisTLSKeyFile, s.RedisTLSServerName
	return func() (*tls.Config, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
		if ca != "" {
			pool, err := readAuthorities(ca)
			if err != nil {
				return nil, fmt.Errorf("read Redis CA file: %w", err)
			}
			config.RootCAs = pool
		}
		if cert != "" {
			pair, err := readKeyPair(cert, key)
			if err != nil {
				return nil, fmt.Errorf("read Redis client certificate: %w", err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		return config, nil
	}
}

func readAuthorities(path FilePath) (*x509.CertPool, error) {
	pem, err := os.ReadFile(string(path))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}

func readKeyPair(cert, key FilePath) (tls.Certificate, error) {
	certPEM, err := os.ReadFile(string(cert))
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := os.ReadFile(string(key))
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return pair, nil
}

// checkTLS checks the TLS settings against each other and reads their files.
func (c *checker) checkTLS() {
	for _, name := range []string{"REDIS_TLS_CA_FILE", "REDIS_TLS_CERT_FILE", "REDIS_TLS_KEY_FILE", "REDIS_TLS_SERVER_NAME"} {
		if c.given[name] && !c.RedisTLS && !c.broken["REDIS_TLS"] && !c.broken["REDIS_ADDRS"] {
			c.mistake(name, "is set, but TLS is not on; set %s_REDIS_TLS=true or use a rediss:// address", envPrefix)
		}
	}
	if c.RedisTLSCAFile != "" {
		if _, err := readAuthorities(c.RedisTLSCAFile); err != nil {
			c.mistake("REDIS_TLS_CA_FILE", "cannot be used: %v", err)
		}
	}
	switch cert, key := c.RedisTLSCertFile, c.RedisTLSKeyFile; {
	case cert != "" && key == "" && !c.broken["REDIS_TLS_KEY_FILE"]:
		c.mistake("REDIS_TLS_CERT_FILE", "needs its key; set %s_REDIS_TLS_KEY_FILE too", envPrefix)
	case cert == "" && key != "" && !c.broken["REDIS_TLS_CERT_FILE"]:
		c.mistake("REDIS_TLS_KEY_FILE", "needs its certificate; set %s_REDIS_TLS_CERT_FILE too", envPrefix)
	case cert != "" && key != "":
		if _, err := readKeyPair(cert, key); err != nil {
			c.mistake("REDIS_TLS_CERT_FILE", "cannot be used: %v", err)
		}
	}
}
