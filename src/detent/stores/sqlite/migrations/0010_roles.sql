-- The roles a person has among people, as approvals ask for them: a JSON list of names.

ALTER TABLE tokens ADD COLUMN roles TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(roles));
